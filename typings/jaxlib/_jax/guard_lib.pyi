from enum import Enum

class TransferGuardLevel(Enum):
    ALLOW = ...  # getattr
    LOG = ...  # getattr
    DISALLOW = ...  # getattr
    LOG_EXPLICIT = ...  # getattr
    DISALLOW_EXPLICIT = ...  # getattr

class GarbageCollectionGuardLevel(Enum):
    ALLOW = ...  # getattr
    LOG = ...  # getattr
    FATAL = ...  # getattr

# None: not set, so that the global state, or the default, applies.
class GuardState:
    host_to_device: TransferGuardLevel | None
    device_to_device: TransferGuardLevel | None
    device_to_host: TransferGuardLevel | None
    garbage_collect_array: GarbageCollectionGuardLevel | None
    explicit_device_put: bool  # getattr
    explicit_device_get: bool  # getattr

def global_state() -> GuardState: ...
def thread_local_state() -> GuardState: ...
