// Foreign functions for the tests: what they see is kept, and can be asked for.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;
using Ret32 = ffi::ResultBuffer<ffi::F32>;
using Any = ffi::AnyBuffer;

static std::atomic<int64_t> calls{0};
static std::mutex lock;  // devices call at the same time
static std::vector<int64_t> seen;  // the shapes of the last call's operands, -1 behind each

static void Note(const std::vector<ffi::Span<const int64_t>>& shapes) {
  std::lock_guard<std::mutex> held(lock);
  ++calls;
  seen.clear();
  for (auto shape : shapes) {
    seen.insert(seen.end(), shape.begin(), shape.end());
    seen.push_back(-1);
  }
}

extern "C" int64_t Calls() { return calls; }
extern "C" int64_t Seen(int64_t i) {
  std::lock_guard<std::mutex> held(lock);
  return i < static_cast<int64_t>(seen.size()) ? seen[i] : -2;
}

// y = x / (mean(x²) + eps) along the last dimension, and that factor.
static ffi::Error RmsImpl(float eps, F32 x, Ret32 y, Ret32 factor) {
  auto dims = x.dimensions();
  if (dims.size() == 0) return ffi::Error::InvalidArgument("rms takes rows");
  int64_t n = dims.back(), rows = x.element_count() / n;
  const float* in = x.typed_data();
  for (int64_t r = 0; r < rows; ++r) {
    float sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += in[r * n + i] * in[r * n + i];
    float f = 1.0f / (sum / n + eps);
    factor->typed_data()[r] = f;
    for (int64_t i = 0; i < n; ++i) y->typed_data()[r * n + i] = in[r * n + i] * f;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Rms, RmsImpl, ffi::Ffi::Bind().Attr<float>("eps").Arg<F32>()
                                                .Ret<F32>().Ret<F32>());

// The cotangent of x, of those of y and of the factor.
static ffi::Error RmsBackImpl(F32 x, F32 factor, F32 gy, F32 gf, Ret32 gx) {
  int64_t n = x.dimensions().back(), rows = x.element_count() / n;
  for (int64_t r = 0; r < rows; ++r) {
    const float *in = x.typed_data() + r * n, *g = gy.typed_data() + r * n;
    float f = factor.typed_data()[r], dot = gf.typed_data()[r];
    for (int64_t i = 0; i < n; ++i) dot += g[i] * in[i];
    for (int64_t i = 0; i < n; ++i)
      gx->typed_data()[r * n + i] = g[i] * f - dot * f * f * 2 * in[i] / n;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(RmsBack, RmsBackImpl, ffi::Ffi::Bind().Arg<F32>().Arg<F32>()
                                                        .Arg<F32>().Arg<F32>().Ret<F32>());

// a + scale * b, with leading dimensions of b that are fewer, or 1.
static ffi::Error AddImpl(float scale, F32 a, F32 b, Ret32 out) {
  Note({a.dimensions(), b.dimensions()});
  int64_t count = out->element_count();
  if (count == 0) return ffi::Error::Success();
  for (int64_t i = 0; i < count; ++i)
    out->typed_data()[i] = a.typed_data()[i % a.element_count()] +
                           scale * b.typed_data()[i % b.element_count()];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Add, AddImpl, ffi::Ffi::Bind().Attr<float>("scale").Arg<F32>()
                                                .Arg<F32>().Ret<F32>());

// Adds 1 in the memory of the result, and says whether that is the operand's.
static ffi::Error IncrementImpl(F32 x, Ret32 y, ffi::ResultBuffer<ffi::S32> same) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] + 1;
  same->typed_data()[0] = x.typed_data() == y->typed_data();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Increment, IncrementImpl, ffi::Ffi::Bind().Arg<F32>().Ret<F32>()
                                                            .Ret<ffi::Buffer<ffi::S32>>());

// The elements as they lie in memory, and 0, 1, 2, … in the memory of the other result.
static ffi::Error MemoryImpl(F32 x, Ret32 flat, Ret32 counted) {
  for (size_t i = 0; i < x.element_count(); ++i) flat->typed_data()[i] = x.typed_data()[i];
  for (size_t i = 0; i < counted->element_count(); ++i) counted->typed_data()[i] = i;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Memory, MemoryImpl,
                              ffi::Ffi::Bind().Arg<F32>().Ret<F32>().Ret<F32>());

// One number of each attribute.
static ffi::Error DescribeImpl(int64_t n, double f, bool b, std::string_view text, float g,
                               uint8_t k, int32_t i, ffi::Span<const int64_t> ns,
                               ffi::Span<const float> fs, ffi::Dictionary d,
                               ffi::ResultBuffer<ffi::F32> out) {
  float* y = out->typed_data();
  auto inner = d.get<int64_t>("n");
  auto word = d.get<std::string_view>("word");
  if (!inner.has_value()) return inner.error();
  if (!word.has_value()) return word.error();
  *y++ = n, *y++ = f, *y++ = b, *y++ = text.size(), *y++ = g, *y++ = k, *y++ = i;
  float sum = 0;
  for (int64_t v : ns) sum = 10 * sum + v;
  *y++ = sum;
  sum = 0;
  for (float v : fs) sum = 10 * sum + v;
  *y++ = sum, *y++ = *inner, *y++ = word->size();
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Describe, DescribeImpl,
    ffi::Ffi::Bind().Attr<int64_t>("n").Attr<double>("f").Attr<bool>("b")
        .Attr<std::string_view>("text").Attr<float>("g").Attr<uint8_t>("k").Attr<int32_t>("i")
        .Attr<ffi::Span<const int64_t>>("ns").Attr<ffi::Span<const float>>("fs")
        .Attr<ffi::Dictionary>("d").Ret<F32>());

// Counts its calls; gives nothing.
static ffi::Error TickImpl(F32 x) {
  Note({x.dimensions()});
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Tick, TickImpl, ffi::Ffi::Bind().Arg<F32>());

// Copies; refuses what is negative.
static ffi::Error RootImpl(F32 x, Ret32 y) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    if (x.typed_data()[i] < 0)
      return ffi::Error(ffi::ErrorCode::kOutOfRange, "no root of element " + std::to_string(i));
    y->typed_data()[i] = x.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Root, RootImpl, ffi::Ffi::Bind().Arg<F32>().Ret<F32>());

// Counts the calls of one compiled program, in a state that is made with it.
struct Count {
  explicit Count(int64_t from) : value(from) {}
  static ffi::TypeId id;
  std::atomic<int64_t> value;
};
ffi::TypeId Count::id = {};
static ffi::TypeInfo count_info = ffi::MakeTypeInfo<Count>();
extern "C" void* CountId() { return &Count::id; }
extern "C" void* CountInfo() { return &count_info; }

static ffi::ErrorOr<std::unique_ptr<Count>> NewCountImpl(int64_t from) {
  return std::make_unique<Count>(from);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(NewCount, NewCountImpl,
                              ffi::Ffi::BindInstantiate().Attr<int64_t>("from"));
static ffi::Error NextCountImpl(Count* count, int64_t from, Ret32 y) {
  y->typed_data()[0] = count->value++;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(NextCount, NextCountImpl,
                              ffi::Ffi::Bind().Ctx<ffi::State<Count>>().Attr<int64_t>("from")
                                  .Ret<F32>());

// Of the interface before: 3·x of one number.
extern "C" void Thrice(void* out, const void** in) {
  *static_cast<float*>(out) = 3 * *static_cast<const float*>(in[0]);
}
