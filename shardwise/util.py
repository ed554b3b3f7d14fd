"""Functions of sequences that programs for JAX use."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.compat.functions_of_2024 import split_dict as split_dict
    from shardwise._src.compat.functions_of_2024 import split_list as split_list
    from shardwise._src.compat.functions_of_2024 import split_list_checked as split_list_checked
    from shardwise._src.compat.functions_of_2024 import split_merge as split_merge
    from shardwise._src.compat.functions_of_2024 import subvals as subvals
    from shardwise._src.compat.functions_of_2024 import unzip2 as unzip2
    from shardwise._src.compat.functions_of_2024 import wrap_name as wrap_name
    from shardwise._src.extend.api_util import safe_map as safe_map
    from shardwise._src.extend.api_util import safe_zip as safe_zip

lazy_names(__name__)
