"""The ops under JAX's `lax` names: strict functions that neither broadcast nor promote.

Operands are arrays, NumPy arrays or Python scalars; scalars are compatible with every shape. For
most functions that are missing here, see `shardwise.numpy`. Names that end with `_p` are the ops
that programs consist of, for interpreters of programs.
"""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.control.cond import cond as cond_p
    from shardwise._src.control.cond_api import cond as cond
    from shardwise._src.control.cond_api import switch as switch
    from shardwise._src.control.generic_reduce import reduce as reduce
    from shardwise._src.control.generic_reduce import reduce_op as reduce_p
    from shardwise._src.control.reduce_window import reduce_window_op as reduce_window_p
    from shardwise._src.control.scan import scan as scan_p
    from shardwise._src.control.scan_api import scan as scan
    from shardwise._src.control.while_api import fori_loop as fori_loop
    from shardwise._src.control.while_api import while_loop as while_loop
    from shardwise._src.control.while_loop import while_loop as while_p
    from shardwise._src.custom.implicit import custom_linear_solve as custom_linear_solve
    from shardwise._src.custom.implicit import custom_root as custom_root
    from shardwise._src.custom.implicit import linear_solve as linear_solve_p
    from shardwise._src.extend.composed import after_all_p as after_all_p
    from shardwise._src.extend.composed import approx_top_k_p as approx_top_k_p
    from shardwise._src.extend.composed import create_token_p as create_token_p
    from shardwise._src.extend.composed import eq_to_p as eq_to_p
    from shardwise._src.extend.composed import le_to_p as le_to_p
    from shardwise._src.extend.composed import lt_to_p as lt_to_p
    from shardwise._src.extend.composed import mulhi_p as mulhi_p
    from shardwise._src.extend.composed import ragged_all_to_all_p as ragged_all_to_all_p
    from shardwise._src.extend.composed import select_and_scatter_p as select_and_scatter_p
    from shardwise._src.extend.composed import squeeze_p as squeeze_p
    from shardwise._src.extend.composed import stack_p as stack_p
    from shardwise._src.extend.composed import stage_p as stage_p
    from shardwise._src.extend.composed import tile_p as tile_p
    from shardwise._src.extend.composed import unstack_p as unstack_p
    from shardwise._src.lax.accuracy import AccuracyMode as AccuracyMode
    from shardwise._src.lax.accuracy import Tolerance as Tolerance
    from shardwise._src.lax.collective_products import pdot as pdot
    from shardwise._src.lax.collective_products import xeinsum as xeinsum
    from shardwise._src.lax.composite_function import composite as composite
    from shardwise._src.lax.contraction import DotAlgorithm as DotAlgorithm
    from shardwise._src.lax.contraction import DotAlgorithmPreset as DotAlgorithmPreset
    from shardwise._src.lax.contraction import DotDimensionNumbers as DotDimensionNumbers
    from shardwise._src.lax.contraction import Precision as Precision
    from shardwise._src.lax.contraction import PrecisionLike as PrecisionLike
    from shardwise._src.lax.contraction import batch_matmul as batch_matmul
    from shardwise._src.lax.contraction import dot as dot
    from shardwise._src.lax.contraction import dot_general as dot_general
    from shardwise._src.lax.conv_general import ConvDimensionNumbers as ConvDimensionNumbers
    from shardwise._src.lax.conv_general import (
        ConvGeneralDilatedDimensionNumbers as ConvGeneralDilatedDimensionNumbers,
    )
    from shardwise._src.lax.conv_general import conv as conv
    from shardwise._src.lax.conv_general import conv_dimension_numbers as conv_dimension_numbers
    from shardwise._src.lax.conv_general import conv_general_dilated as conv_general_dilated
    from shardwise._src.lax.conv_general import (
        conv_general_dilated_local as conv_general_dilated_local,
    )
    from shardwise._src.lax.conv_general import (
        conv_general_dilated_patches as conv_general_dilated_patches,
    )
    from shardwise._src.lax.conv_general import (
        conv_general_permutations as conv_general_permutations,
    )
    from shardwise._src.lax.conv_general import conv_general_shape_tuple as conv_general_shape_tuple
    from shardwise._src.lax.conv_general import conv_shape_tuple as conv_shape_tuple
    from shardwise._src.lax.conv_general import conv_transpose as conv_transpose
    from shardwise._src.lax.conv_general import (
        conv_transpose_shape_tuple as conv_transpose_shape_tuple,
    )
    from shardwise._src.lax.conv_general import (
        conv_with_general_padding as conv_with_general_padding,
    )
    from shardwise._src.lax.conv_general import padtype_to_pads as padtype_to_pads
    from shardwise._src.lax.dynamic_slices import GatherDimensionNumbers as GatherDimensionNumbers
    from shardwise._src.lax.dynamic_slices import GatherScatterMode as GatherScatterMode
    from shardwise._src.lax.dynamic_slices import ScatterDimensionNumbers as ScatterDimensionNumbers
    from shardwise._src.lax.dynamic_slices import dynamic_index_in_dim as dynamic_index_in_dim
    from shardwise._src.lax.dynamic_slices import dynamic_slice as dynamic_slice
    from shardwise._src.lax.dynamic_slices import dynamic_slice_in_dim as dynamic_slice_in_dim
    from shardwise._src.lax.dynamic_slices import (
        dynamic_update_index_in_dim as dynamic_update_index_in_dim,
    )
    from shardwise._src.lax.dynamic_slices import dynamic_update_slice as dynamic_update_slice
    from shardwise._src.lax.dynamic_slices import (
        dynamic_update_slice_in_dim as dynamic_update_slice_in_dim,
    )
    from shardwise._src.lax.dynamic_slices import gather as gather
    from shardwise._src.lax.dynamic_slices import index_take as index_take
    from shardwise._src.lax.dynamic_slices import scatter as scatter
    from shardwise._src.lax.dynamic_slices import scatter_add as scatter_add
    from shardwise._src.lax.dynamic_slices import scatter_apply as scatter_apply
    from shardwise._src.lax.dynamic_slices import scatter_max as scatter_max
    from shardwise._src.lax.dynamic_slices import scatter_min as scatter_min
    from shardwise._src.lax.dynamic_slices import scatter_mul as scatter_mul
    from shardwise._src.lax.dynamic_slices import scatter_sub as scatter_sub
    from shardwise._src.lax.elementwise_operators import RoundingMethod as RoundingMethod
    from shardwise._src.lax.elementwise_operators import abs as abs
    from shardwise._src.lax.elementwise_operators import acos as acos
    from shardwise._src.lax.elementwise_operators import acosh as acosh
    from shardwise._src.lax.elementwise_operators import add as add
    from shardwise._src.lax.elementwise_operators import asin as asin
    from shardwise._src.lax.elementwise_operators import asinh as asinh
    from shardwise._src.lax.elementwise_operators import atan as atan
    from shardwise._src.lax.elementwise_operators import atan2 as atan2
    from shardwise._src.lax.elementwise_operators import atanh as atanh
    from shardwise._src.lax.elementwise_operators import bitwise_and as bitwise_and
    from shardwise._src.lax.elementwise_operators import bitwise_not as bitwise_not
    from shardwise._src.lax.elementwise_operators import bitwise_or as bitwise_or
    from shardwise._src.lax.elementwise_operators import bitwise_xor as bitwise_xor
    from shardwise._src.lax.elementwise_operators import cbrt as cbrt
    from shardwise._src.lax.elementwise_operators import ceil as ceil
    from shardwise._src.lax.elementwise_operators import clamp as clamp
    from shardwise._src.lax.elementwise_operators import clz as clz
    from shardwise._src.lax.elementwise_operators import complex as complex
    from shardwise._src.lax.elementwise_operators import conj as conj
    from shardwise._src.lax.elementwise_operators import cos as cos
    from shardwise._src.lax.elementwise_operators import cosh as cosh
    from shardwise._src.lax.elementwise_operators import div as div
    from shardwise._src.lax.elementwise_operators import eq as eq
    from shardwise._src.lax.elementwise_operators import exp as exp
    from shardwise._src.lax.elementwise_operators import exp2 as exp2
    from shardwise._src.lax.elementwise_operators import expm1 as expm1
    from shardwise._src.lax.elementwise_operators import floor as floor
    from shardwise._src.lax.elementwise_operators import ge as ge
    from shardwise._src.lax.elementwise_operators import gt as gt
    from shardwise._src.lax.elementwise_operators import imag as imag
    from shardwise._src.lax.elementwise_operators import integer_pow as integer_pow
    from shardwise._src.lax.elementwise_operators import is_finite as is_finite
    from shardwise._src.lax.elementwise_operators import le as le
    from shardwise._src.lax.elementwise_operators import log as log
    from shardwise._src.lax.elementwise_operators import log1p as log1p
    from shardwise._src.lax.elementwise_operators import log2 as log2
    from shardwise._src.lax.elementwise_operators import logistic as logistic
    from shardwise._src.lax.elementwise_operators import lt as lt
    from shardwise._src.lax.elementwise_operators import max as max
    from shardwise._src.lax.elementwise_operators import min as min
    from shardwise._src.lax.elementwise_operators import mul as mul
    from shardwise._src.lax.elementwise_operators import mulhi as mulhi
    from shardwise._src.lax.elementwise_operators import ne as ne
    from shardwise._src.lax.elementwise_operators import neg as neg
    from shardwise._src.lax.elementwise_operators import nextafter as nextafter
    from shardwise._src.lax.elementwise_operators import one_minus_square as one_minus_square
    from shardwise._src.lax.elementwise_operators import population_count as population_count
    from shardwise._src.lax.elementwise_operators import pow as pow
    from shardwise._src.lax.elementwise_operators import real as real
    from shardwise._src.lax.elementwise_operators import reciprocal as reciprocal
    from shardwise._src.lax.elementwise_operators import rem as rem
    from shardwise._src.lax.elementwise_operators import round as round
    from shardwise._src.lax.elementwise_operators import rsqrt as rsqrt
    from shardwise._src.lax.elementwise_operators import select as select
    from shardwise._src.lax.elementwise_operators import select_n as select_n
    from shardwise._src.lax.elementwise_operators import shift_left as shift_left
    from shardwise._src.lax.elementwise_operators import (
        shift_right_arithmetic as shift_right_arithmetic,
    )
    from shardwise._src.lax.elementwise_operators import shift_right_logical as shift_right_logical
    from shardwise._src.lax.elementwise_operators import sign as sign
    from shardwise._src.lax.elementwise_operators import sin as sin
    from shardwise._src.lax.elementwise_operators import sinh as sinh
    from shardwise._src.lax.elementwise_operators import sqrt as sqrt
    from shardwise._src.lax.elementwise_operators import square as square
    from shardwise._src.lax.elementwise_operators import stop_gradient as stop_gradient
    from shardwise._src.lax.elementwise_operators import sub as sub
    from shardwise._src.lax.elementwise_operators import tan as tan
    from shardwise._src.lax.elementwise_operators import tanh as tanh
    from shardwise._src.lax.lax_reductions import argmax as argmax
    from shardwise._src.lax.lax_reductions import argmin as argmin
    from shardwise._src.lax.lax_reductions import cumlogsumexp as cumlogsumexp
    from shardwise._src.lax.lax_reductions import cummax as cummax
    from shardwise._src.lax.lax_reductions import cummin as cummin
    from shardwise._src.lax.lax_reductions import cumprod as cumprod
    from shardwise._src.lax.lax_reductions import cumsum as cumsum
    from shardwise._src.lax.lax_reductions import reduce_and as reduce_and
    from shardwise._src.lax.lax_reductions import reduce_max as reduce_max
    from shardwise._src.lax.lax_reductions import reduce_min as reduce_min
    from shardwise._src.lax.lax_reductions import reduce_or as reduce_or
    from shardwise._src.lax.lax_reductions import reduce_prod as reduce_prod
    from shardwise._src.lax.lax_reductions import reduce_sum as reduce_sum
    from shardwise._src.lax.lax_reductions import reduce_xor as reduce_xor
    from shardwise._src.lax.lax_reductions import sort as sort
    from shardwise._src.lax.lax_reductions import sort_key_val as sort_key_val
    from shardwise._src.lax.lax_reductions import top_k as top_k
    from shardwise._src.lax.map_and_scan import associative_scan as associative_scan
    from shardwise._src.lax.map_and_scan import dce_sink as dce_sink
    from shardwise._src.lax.map_and_scan import map as map
    from shardwise._src.lax.map_and_scan import optimization_barrier as optimization_barrier
    from shardwise._src.lax.nearest import approx_max_k as approx_max_k
    from shardwise._src.lax.nearest import approx_min_k as approx_min_k
    from shardwise._src.lax.parallel import all_gather as all_gather
    from shardwise._src.lax.parallel import all_gather_invariant as all_gather_invariant
    from shardwise._src.lax.parallel import all_to_all as all_to_all
    from shardwise._src.lax.parallel import axis_index as axis_index
    from shardwise._src.lax.parallel import axis_size as axis_size
    from shardwise._src.lax.parallel import pbroadcast as pbroadcast
    from shardwise._src.lax.parallel import pcast as pcast
    from shardwise._src.lax.parallel import pmax as pmax
    from shardwise._src.lax.parallel import pmean as pmean
    from shardwise._src.lax.parallel import pmin as pmin
    from shardwise._src.lax.parallel import ppermute as ppermute
    from shardwise._src.lax.parallel import pshuffle as pshuffle
    from shardwise._src.lax.parallel import psum as psum
    from shardwise._src.lax.parallel import psum_scatter as psum_scatter
    from shardwise._src.lax.parallel import pswapaxes as pswapaxes
    from shardwise._src.lax.parallel import pvary as pvary
    from shardwise._src.lax.platform_dependent import RandomAlgorithm as RandomAlgorithm
    from shardwise._src.lax.platform_dependent import platform_dependent as platform_dependent
    from shardwise._src.lax.platform_dependent import rng_bit_generator as rng_bit_generator
    from shardwise._src.lax.ragged import ragged_all_to_all as ragged_all_to_all
    from shardwise._src.lax.ragged_products import (
        RaggedDotDimensionNumbers as RaggedDotDimensionNumbers,
    )
    from shardwise._src.lax.ragged_products import ragged_dot as ragged_dot
    from shardwise._src.lax.ragged_products import ragged_dot_general as ragged_dot_general
    from shardwise._src.lax.ragged_products import scaled_dot as scaled_dot
    from shardwise._src.lax.reduce_windows import reduce_window as reduce_window
    from shardwise._src.lax.reduce_windows import (
        reduce_window_shape_tuple as reduce_window_shape_tuple,
    )
    from shardwise._src.lax.shape_operators import bitcast_convert_type as bitcast_convert_type
    from shardwise._src.lax.shape_operators import broadcast as broadcast
    from shardwise._src.lax.shape_operators import broadcast_in_dim as broadcast_in_dim
    from shardwise._src.lax.shape_operators import broadcast_like as broadcast_like
    from shardwise._src.lax.shape_operators import broadcast_shapes as broadcast_shapes
    from shardwise._src.lax.shape_operators import broadcast_to_rank as broadcast_to_rank
    from shardwise._src.lax.shape_operators import broadcasted_iota as broadcasted_iota
    from shardwise._src.lax.shape_operators import collapse as collapse
    from shardwise._src.lax.shape_operators import concatenate as concatenate
    from shardwise._src.lax.shape_operators import convert_element_type as convert_element_type
    from shardwise._src.lax.shape_operators import dtype as dtype
    from shardwise._src.lax.shape_operators import empty as empty
    from shardwise._src.lax.shape_operators import expand_dims as expand_dims
    from shardwise._src.lax.shape_operators import full as full
    from shardwise._src.lax.shape_operators import full_like as full_like
    from shardwise._src.lax.shape_operators import index_in_dim as index_in_dim
    from shardwise._src.lax.shape_operators import iota as iota
    from shardwise._src.lax.shape_operators import pad as pad
    from shardwise._src.lax.shape_operators import reduce_precision as reduce_precision
    from shardwise._src.lax.shape_operators import reshape as reshape
    from shardwise._src.lax.shape_operators import rev as rev
    from shardwise._src.lax.shape_operators import shape_as_value as shape_as_value
    from shardwise._src.lax.shape_operators import slice as slice
    from shardwise._src.lax.shape_operators import slice_in_dim as slice_in_dim
    from shardwise._src.lax.shape_operators import split as split
    from shardwise._src.lax.shape_operators import squeeze as squeeze
    from shardwise._src.lax.shape_operators import stack as stack
    from shardwise._src.lax.shape_operators import stage as stage
    from shardwise._src.lax.shape_operators import tile as tile
    from shardwise._src.lax.shape_operators import transpose as transpose
    from shardwise._src.lax.shape_operators import unstack as unstack
    from shardwise._src.lax.tokens import after_all as after_all
    from shardwise._src.lax.tokens import create_token as create_token
    from shardwise._src.lax.tokens import rng_uniform as rng_uniform
    from shardwise._src.ops.barrier import optimization_barrier as optimization_barrier_p
    from shardwise._src.ops.basis import broadcast_in_dim as broadcast_in_dim_p
    from shardwise._src.ops.basis import reduce_sum as reduce_sum_p
    from shardwise._src.ops.basis import reshape as reshape_p
    from shardwise._src.ops.basis import transpose as transpose_p
    from shardwise._src.ops.cast import bitcast_convert_type as bitcast_convert_type_p
    from shardwise._src.ops.cast import convert_element_type as convert_element_type_p
    from shardwise._src.ops.cast import reduce_precision as reduce_precision_p
    from shardwise._src.ops.contract import dot_general as dot_general_p
    from shardwise._src.ops.convolution import conv_general_dilated as conv_general_dilated_p
    from shardwise._src.ops.create import iota as iota_p
    from shardwise._src.ops.cumulative import cumlogsumexp as cumlogsumexp_p
    from shardwise._src.ops.cumulative import cummax as cummax_p
    from shardwise._src.ops.cumulative import cummin as cummin_p
    from shardwise._src.ops.cumulative import cumprod as cumprod_p
    from shardwise._src.ops.cumulative import cumsum as cumsum_p
    from shardwise._src.ops.elementwise import abs as abs_p
    from shardwise._src.ops.elementwise import acos as acos_p
    from shardwise._src.ops.elementwise import acosh as acosh_p
    from shardwise._src.ops.elementwise import asin as asin_p
    from shardwise._src.ops.elementwise import asinh as asinh_p
    from shardwise._src.ops.elementwise import atan as atan_p
    from shardwise._src.ops.elementwise import atan2 as atan2_p
    from shardwise._src.ops.elementwise import atanh as atanh_p
    from shardwise._src.ops.elementwise import cbrt as cbrt_p
    from shardwise._src.ops.elementwise import ceil as ceil_p
    from shardwise._src.ops.elementwise import complex as complex_p
    from shardwise._src.ops.elementwise import conj as conj_p
    from shardwise._src.ops.elementwise import copy as copy_p
    from shardwise._src.ops.elementwise import cos as cos_p
    from shardwise._src.ops.elementwise import cosh as cosh_p
    from shardwise._src.ops.elementwise import div as div_p
    from shardwise._src.ops.elementwise import exp as exp_p
    from shardwise._src.ops.elementwise import exp2 as exp2_p
    from shardwise._src.ops.elementwise import expm1 as expm1_p
    from shardwise._src.ops.elementwise import floor as floor_p
    from shardwise._src.ops.elementwise import imag as imag_p
    from shardwise._src.ops.elementwise import integer_pow as integer_pow_p
    from shardwise._src.ops.elementwise import is_finite as is_finite_p
    from shardwise._src.ops.elementwise import log as log_p
    from shardwise._src.ops.elementwise import log1p as log1p_p
    from shardwise._src.ops.elementwise import logistic as logistic_p
    from shardwise._src.ops.elementwise import max as max_p
    from shardwise._src.ops.elementwise import min as min_p
    from shardwise._src.ops.elementwise import mul as mul_p
    from shardwise._src.ops.elementwise import neg as neg_p
    from shardwise._src.ops.elementwise import nextafter as nextafter_p
    from shardwise._src.ops.elementwise import one_minus_square as one_minus_square_p
    from shardwise._src.ops.elementwise import pow as pow_p
    from shardwise._src.ops.elementwise import real as real_p
    from shardwise._src.ops.elementwise import rem as rem_p
    from shardwise._src.ops.elementwise import round as round_p
    from shardwise._src.ops.elementwise import rsqrt as rsqrt_p
    from shardwise._src.ops.elementwise import sign as sign_p
    from shardwise._src.ops.elementwise import sin as sin_p
    from shardwise._src.ops.elementwise import sinh as sinh_p
    from shardwise._src.ops.elementwise import sqrt as sqrt_p
    from shardwise._src.ops.elementwise import square as square_p
    from shardwise._src.ops.elementwise import stop_gradient as stop_gradient_p
    from shardwise._src.ops.elementwise import sub as sub_p
    from shardwise._src.ops.elementwise import tan as tan_p
    from shardwise._src.ops.elementwise import tanh as tanh_p
    from shardwise._src.ops.families import add as add_p
    from shardwise._src.ops.fft import fft as fft_p
    from shardwise._src.ops.indexing.gather_scatter import dynamic_slice as dynamic_slice_p
    from shardwise._src.ops.indexing.gather_scatter import (
        dynamic_update_slice as dynamic_update_slice_p,
    )
    from shardwise._src.ops.indexing.gather_scatter import gather as gather_p
    from shardwise._src.ops.indexing.gather_scatter import scatter as scatter_p
    from shardwise._src.ops.indexing.gather_scatter import scatter_add as scatter_add_p
    from shardwise._src.ops.indexing.gather_scatter import scatter_max as scatter_max_p
    from shardwise._src.ops.indexing.gather_scatter import scatter_min as scatter_min_p
    from shardwise._src.ops.indexing.gather_scatter import scatter_mul as scatter_mul_p
    from shardwise._src.ops.indexing.gather_scatter import scatter_sub as scatter_sub_p
    from shardwise._src.ops.logical import bitwise_and as and_p
    from shardwise._src.ops.logical import bitwise_not as not_p
    from shardwise._src.ops.logical import bitwise_or as or_p
    from shardwise._src.ops.logical import bitwise_xor as xor_p
    from shardwise._src.ops.logical import clamp as clamp_p
    from shardwise._src.ops.logical import clz as clz_p
    from shardwise._src.ops.logical import eq as eq_p
    from shardwise._src.ops.logical import ge as ge_p
    from shardwise._src.ops.logical import gt as gt_p
    from shardwise._src.ops.logical import le as le_p
    from shardwise._src.ops.logical import lt as lt_p
    from shardwise._src.ops.logical import ne as ne_p
    from shardwise._src.ops.logical import population_count as population_count_p
    from shardwise._src.ops.logical import select_n as select_n_p
    from shardwise._src.ops.logical import shift_left as shift_left_p
    from shardwise._src.ops.logical import shift_right_arithmetic as shift_right_arithmetic_p
    from shardwise._src.ops.logical import shift_right_logical as shift_right_logical_p
    from shardwise._src.ops.pooling import reduce_window_max as reduce_window_max_p
    from shardwise._src.ops.pooling import reduce_window_min as reduce_window_min_p
    from shardwise._src.ops.pooling import reduce_window_sum as reduce_window_sum_p
    from shardwise._src.ops.pooling import select_and_gather_add as select_and_gather_add_p
    from shardwise._src.ops.pooling import select_and_scatter_add as select_and_scatter_add_p
    from shardwise._src.ops.random.rng import rng_bit_generator as rng_bit_generator_p
    from shardwise._src.ops.random.rng_uniform import rng_uniform as rng_uniform_p
    from shardwise._src.ops.reduce import argmax as argmax_p
    from shardwise._src.ops.reduce import argmin as argmin_p
    from shardwise._src.ops.reduce import reduce_and as reduce_and_p
    from shardwise._src.ops.reduce import reduce_max as reduce_max_p
    from shardwise._src.ops.reduce import reduce_min as reduce_min_p
    from shardwise._src.ops.reduce import reduce_or as reduce_or_p
    from shardwise._src.ops.reduce import reduce_prod as reduce_prod_p
    from shardwise._src.ops.reduce import reduce_xor as reduce_xor_p
    from shardwise._src.ops.shape import concatenate as concatenate_p
    from shardwise._src.ops.shape import pad as pad_p
    from shardwise._src.ops.shape import rev as rev_p
    from shardwise._src.ops.shape import slice_ as slice_p
    from shardwise._src.ops.shape import split as split_p
    from shardwise._src.ops.sharded.collective import all_gather as all_gather_p
    from shardwise._src.ops.sharded.collective import all_to_all as all_to_all_p
    from shardwise._src.ops.sharded.collective import axis_index as axis_index_p
    from shardwise._src.ops.sharded.collective import pmax as pmax_p
    from shardwise._src.ops.sharded.collective import pmin as pmin_p
    from shardwise._src.ops.sharded.collective import ppermute as ppermute_p
    from shardwise._src.ops.sharded.collective import psum as psum_p
    from shardwise._src.ops.sharded.device_put_op import device_put as device_put_p
    from shardwise._src.ops.sharded.sharding_ops import sharding_constraint as sharding_constraint_p
    from shardwise._src.ops.sink import dce_sink as dce_sink_p
    from shardwise._src.ops.sort import sort as sort_p
    from shardwise._src.ops.sort import top_k as top_k_p
    from shardwise._src.ops.special.incomplete import igamma as igamma_p
    from shardwise._src.ops.special.incomplete import igamma_grad_a as igamma_grad_a_p
    from shardwise._src.ops.special.incomplete import igammac as igammac_p
    from shardwise._src.ops.special.incomplete import (
        regularized_incomplete_beta as regularized_incomplete_beta_p,
    )
    from shardwise._src.ops.special.special_functions import bessel_i0e as bessel_i0e_p
    from shardwise._src.ops.special.special_functions import bessel_i1e as bessel_i1e_p
    from shardwise._src.ops.special.special_functions import digamma as digamma_p
    from shardwise._src.ops.special.special_functions import erf as erf_p
    from shardwise._src.ops.special.special_functions import erf_inv as erf_inv_p
    from shardwise._src.ops.special.special_functions import erfc as erfc_p
    from shardwise._src.ops.special.special_functions import lgamma as lgamma_p
    from shardwise._src.ops.special.special_functions import polygamma as polygamma_p
    from shardwise._src.ops.special.special_functions import zeta as zeta_p
    from shardwise._src.placement.device_put import (
        with_sharding_constraint as with_sharding_constraint,
    )
    from shardwise._src.signal.lax_fft import FftType as FftType
    from shardwise._src.signal.lax_fft import fft as fft
    from shardwise._src.special.lax_special import bessel_i0e as bessel_i0e
    from shardwise._src.special.lax_special import bessel_i1e as bessel_i1e
    from shardwise._src.special.lax_special import betainc as betainc
    from shardwise._src.special.lax_special import digamma as digamma
    from shardwise._src.special.lax_special import erf as erf
    from shardwise._src.special.lax_special import erf_inv as erf_inv
    from shardwise._src.special.lax_special import erfc as erfc
    from shardwise._src.special.lax_special import igamma as igamma
    from shardwise._src.special.lax_special import igamma_grad_a as igamma_grad_a
    from shardwise._src.special.lax_special import igammac as igammac
    from shardwise._src.special.lax_special import lgamma as lgamma
    from shardwise._src.special.lax_special import polygamma as polygamma
    from shardwise._src.special.lax_special import polynomial as polynomial
    from shardwise._src.special.lax_special import random_gamma_grad as random_gamma_grad
    from shardwise._src.special.lax_special import zeta as zeta
    from shardwise.lax import linalg as linalg

lazy_names(__name__)
