from collections.abc import Callable, Mapping, Sequence
from typing import Any

from typing_extensions import CapsuleType

from ._hlo import HloSharding as HloSharding
from ._hlo import OpSharding as OpSharding
from ._hlo import Shape
from ._jax import Client, CpuCollectives, DeviceTopology, DistributedRuntimeClient
from ._jax import CompileOptions as CompileOptions
from ._jax import DeviceAssignment as DeviceAssignment

# ------------------------------------------------------------------------------------- clients

def make_cpu_client(
    asynchronous: bool = True,
    distributed_client: DistributedRuntimeClient | None = None,
    node_id: int = 0,
    num_nodes: int = 1,
    collectives: CpuCollectives | None = None,
    num_devices: int | None = None,
) -> Client: ...
def load_pjrt_plugin_dynamically(plugin_name: str, library_path: str) -> CapsuleType: ...
def initialize_pjrt_plugin(plugin_name: str) -> None: ...
def pjrt_plugin_loaded(plugin_name: str) -> bool: ...
def pjrt_plugin_initialized(plugin_name: str) -> bool: ...
def make_c_api_device_topology(
    c_api: CapsuleType, topology_name: str = "", **kwargs: str
) -> DeviceTopology: ...
def make_tfrt_tpu_c_api_device_topology(
    topology_name: str | None = None, **kwargs: str | list[int]
) -> DeviceTopology: ...
def generate_pjrt_gpu_plugin_options() -> dict[str, str | int | list[int] | float | bool]: ...
def make_c_api_client(
    plugin_name: str,
    options: Mapping[str, str | int | list[int] | float | bool] | None = None,
    distributed_client: DistributedRuntimeClient | None = None,
) -> Client: ...

# -------------------------------------------------------------------------------- custom calls

# A function is a capsule, or, if it has stages, a capsule by stage.
def custom_call_targets(platform: str) -> dict[str, CapsuleType | dict[str, CapsuleType]]: ...
def register_custom_call_target(
    name: str,
    fn: CapsuleType | dict[str, CapsuleType],
    platform: str = "cpu",
    api_version: int = 0,
    traits: int = ...,
) -> None: ...
def register_custom_type(
    type_name: str, type_id: CapsuleType | dict[str, CapsuleType], platform: str = "cpu"
) -> None: ...

# The handlers take the arguments of `register_custom_call_target` and `register_custom_type`.
def register_custom_call_handler(platform: str, handler: Callable[..., Any]) -> None: ...
def register_custom_type_handler(platform: str, handler: Callable[..., Any]) -> None: ...
def register_custom_call_partitioner(
    name: str,
    prop_user_sharding: Callable[[HloSharding, Shape, bytes], HloSharding],
    partition: Callable[
        [list[Shape], list[HloSharding | None], Shape, HloSharding | None, bytes],
        tuple[bytes, Sequence[HloSharding | None], HloSharding],
    ],
    infer_sharding_from_operands: Callable[
        [list[Shape], list[HloSharding | None], Shape, bytes], HloSharding | None
    ],
    can_side_effecting_have_replicated_sharding: bool = False,
    c_api: CapsuleType | None = None,
) -> None: ...
