"""The library's error classes. Each has a page with examples and fixes in docs/errors."""

from typing import TYPE_CHECKING

from shardwise.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise.base.errors import BroadcastError as BroadcastError
    from shardwise.base.errors import ConcretizationTypeError as ConcretizationTypeError
    from shardwise.base.errors import LeakedTracerError as LeakedTracerError
    from shardwise.base.errors import NonConcreteBooleanIndexError as NonConcreteBooleanIndexError
    from shardwise.base.errors import ShardingTypeError as ShardingTypeError
    from shardwise.base.errors import TracerArrayConversionError as TracerArrayConversionError
    from shardwise.base.errors import TracerBoolConversionError as TracerBoolConversionError
    from shardwise.base.errors import TracerIntegerConversionError as TracerIntegerConversionError
    from shardwise.base.errors import TypePromotionError as TypePromotionError
    from shardwise.base.errors import UnexpectedTracerError as UnexpectedTracerError
    from shardwise.control.checking import CheckError as CheckError
    from shardwise.runtime.callbacks import CallbackError as CallbackError
    from shardwise.runtime.callbacks import JaxRuntimeError as JaxRuntimeError

__getattr__, __dir__ = lazy_names(__name__)
