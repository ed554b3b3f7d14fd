"""Maps over devices of several processes: shard_map, pmap, xmap, vmap, and the code inside them."""

from tests.processes.running import agrees, cases


@cases("maps")
def test_maps(count, part):
    agrees("maps", count, part)
