"""The library's error classes. `shardwise explain-error NAME` shows examples and fixes."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.base.errors import BroadcastError as BroadcastError
    from shardwise._src.base.errors import CheckpointError as CheckpointError
    from shardwise._src.base.errors import ConcretizationTypeError as ConcretizationTypeError
    from shardwise._src.base.errors import DtypeError as DtypeError
    from shardwise._src.base.errors import (
        InconclusiveDimensionOperation as InconclusiveDimensionOperation,
    )
    from shardwise._src.base.errors import JAXIndexError as JAXIndexError
    from shardwise._src.base.errors import JaxprTypeError as JaxprTypeError
    from shardwise._src.base.errors import JAXTypeError as JAXTypeError
    from shardwise._src.base.errors import KernelError as KernelError
    from shardwise._src.base.errors import KeyReuseError as KeyReuseError
    from shardwise._src.base.errors import LeakedTracerError as LeakedTracerError
    from shardwise._src.base.errors import (
        NonConcreteBooleanIndexError as NonConcreteBooleanIndexError,
    )
    from shardwise._src.base.errors import ProcessFailureError as ProcessFailureError
    from shardwise._src.base.errors import ShapeError as ShapeError
    from shardwise._src.base.errors import ShardingTypeError as ShardingTypeError
    from shardwise._src.base.errors import TracerArrayConversionError as TracerArrayConversionError
    from shardwise._src.base.errors import TracerBoolConversionError as TracerBoolConversionError
    from shardwise._src.base.errors import (
        TracerIntegerConversionError as TracerIntegerConversionError,
    )
    from shardwise._src.base.errors import TypePromotionError as TypePromotionError
    from shardwise._src.base.errors import UnexpectedTracerError as UnexpectedTracerError
    from shardwise._src.debug.checked_programs import CheckError as CheckError
    from shardwise._src.runtime.compiler.callback_targets import CallbackError as CallbackError
    from shardwise._src.runtime.compiler.callback_targets import JaxRuntimeError as JaxRuntimeError

lazy_names(__name__)
