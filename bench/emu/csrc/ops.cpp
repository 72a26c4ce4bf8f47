// Operators: the CPU's kernels on the device's memory, which is the host's, at once; and their time
// on the device, queued. Results can therefore be read early, but nothing that reads them returns
// before the device would have been done.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_copy_from_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <unordered_map>

#include "device.h"

namespace at::autocast {
// From ATen/autocast_mode.h, which includes every operator there is.
TORCH_API ScalarType get_autocast_dtype(DeviceType device);
TORCH_API Tensor cached_cast(ScalarType to, const Tensor& arg, DeviceType device);
}

namespace emu {
namespace {

using at::Tensor;

bool is_ours(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice; }

// The same bytes under another device; `Storage` keeps the memory alive.
Tensor share(const Tensor& from, c10::Device device, c10::DispatchKey key, c10::Allocator* allocator) {
  const auto& storage = from.storage();
  auto* held = new c10::Storage(storage);
  c10::DataPtr data(
      storage.mutable_data(), held, [](void* s) { delete static_cast<c10::Storage*>(s); }, device);
  auto impl = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data), allocator, true);
  Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(impl), c10::DispatchKeySet(key), from.dtype());
  auto* tensor = made.unsafeGetTensorImpl();
  tensor->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) tensor->set_wrapped_number(true);
  if (from.is_conj()) tensor->_set_conj(true);
  if (from.is_neg()) tensor->_set_neg(true);
  return made;
}

Tensor on_host(const Tensor& ours) {
  return share(ours, c10::kCPU, c10::DispatchKey::CPU, c10::GetCPUAllocator());
}

Tensor on_device(const Tensor& host, c10::Device device) {
  return share(host, device, c10::DispatchKey::PrivateUse1, device_allocator());
}

// The arguments of one call as the host's kernels see them.
struct Swap {
  std::vector<std::pair<Tensor, Tensor>> pairs;  // ours, the host's view of it
  c10::optional<c10::Device> device;

  Tensor to_host(const Tensor& tensor) {
    if (!is_ours(tensor)) return tensor;
    if (!device) device = tensor.device();
    for (auto& [ours, host] : pairs)
      if (ours.is_same(tensor)) return host;
    pairs.emplace_back(tensor, on_host(tensor));
    return pairs.back().second;
  }

  // What a kernel gives back: one of our tensors, a view of one, or something new.
  Tensor to_device(const Tensor& result) {
    if (!result.defined() || is_ours(result)) return result;
    for (auto& [ours, host] : pairs) {
      if (host.is_same(result)) return ours;
      if (host.storage().is_alias_of(result.storage())) {
        Tensor view = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(ours.storage()),
            c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype());
        view.unsafeGetTensorImpl()->set_sizes_and_strides(
            result.sizes(), result.strides(), result.storage_offset());
        return view;
      }
    }
    return on_device(result, *device);
  }

  // A kernel may have given an output more memory and another shape.
  void adopt() {
    for (auto& [ours, host] : pairs) {
      if (ours.storage().data() != host.storage().data()) {
        Tensor grown = on_device(host, ours.device());
        ours.storage().set_data_ptr_noswap(grown.storage().set_data_ptr(c10::DataPtr()));
        ours.storage().set_nbytes(host.storage().nbytes());
      }
      if (ours.sizes() != host.sizes() || ours.strides() != host.strides())
        ours.unsafeGetTensorImpl()->set_sizes_and_strides(
            host.sizes(), host.strides(), host.storage_offset());
    }
  }
};

double product(at::IntArrayRef sizes) {
  double all = 1;
  for (auto size : sizes) all *= static_cast<double>(size);
  return all;
}

// Floating-point operations of what is known to be much work; 0 for all else.
double count_flops(const std::string& name, const std::vector<Tensor>& in, const Tensor& out) {
  if (name == "aten::mm" || name == "aten::bmm")
    return 2 * product(out.sizes()) * static_cast<double>(in[0].size(-1));
  if (name == "aten::addmm" || name == "aten::baddbmm")
    return 2 * product(out.sizes()) * static_cast<double>(in[1].size(-1));
  return 0;
}

Ns time_kernel(double flops, double bytes) {
  const auto& s = machine().settings;
  double us = std::max({s.kernel_us, flops / s.math_gflops / 1e3, bytes / s.memory_gbps / 1e3});
  return static_cast<Ns>(us * 1e3);
}

void launch(c10::Device device, Ns length, Doing doing = Doing::kernel) {
  touch(device.index());
  machine().launch(device.index(), current_stream(device.index()), length, doing);
}

void wait(c10::Device device) {
  TORCH_CHECK(!machine().is_capturing(), "the host cannot wait for a stream that is captured");
  machine().synchronize(device.index(), current_stream(device.index()));
}

template <typename F>
void visit_tensors(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& each : value.toTensorVector()) visit(each);
  }
}

c10::IValue swap_in(const c10::IValue& value, Swap& swap) {
  if (value.isTensor()) return swap.to_host(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> hosts;
    for (const Tensor& each : value.toTensorVector()) hosts.push_back(swap.to_host(each));
    return hosts;
  }
  if (value.isOptionalTensorList()) {
    c10::List<c10::optional<Tensor>> hosts;
    for (const c10::optional<Tensor>& each : value.toOptionalTensorList())
      hosts.push_back(each ? c10::make_optional(swap.to_host(*each)) : each);
    return hosts;
  }
  if (value.isDevice() && value.toDevice().type() == kDevice) {
    auto index = value.toDevice().has_index() ? value.toDevice().index() : current_device();
    swap.device = c10::Device(kDevice, static_cast<c10::DeviceIndex>(index));
    return c10::Device(c10::kCPU);
  }
  return value;
}

c10::IValue swap_out(const c10::IValue& value, Swap& swap) {
  if (value.isTensor()) return swap.to_device(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> ours;
    for (const Tensor& each : value.toTensorVector()) ours.push_back(swap.to_device(each));
    return ours;
  }
  return value;
}

// Every operator that has no kernel of ours below.
void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::AutoDispatchBelowADInplaceOrView below;
  const auto& schema = op.schema();
  auto arguments = torch::jit::last(*stack, schema.arguments().size());
  Swap swap;
  std::vector<Tensor> in;
  double bytes = 0;
  for (size_t n = 0; n < schema.arguments().size(); ++n) {
    visit_tensors(arguments[n], [&](const Tensor& t) {
      if (!is_ours(t)) return;
      in.push_back(t);
      bytes += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
    });
  }
  for (size_t at = stack->size() - schema.arguments().size(); at < stack->size(); ++at)
    (*stack)[at] = swap_in((*stack)[at], swap);
  if (!swap.device)
    swap.device = c10::Device(kDevice, static_cast<c10::DeviceIndex>(current_device()));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  swap.adopt();

  bool is_value = false;
  Tensor out;
  for (size_t at = stack->size() - schema.returns().size(); at < stack->size(); ++at) {
    auto& value = (*stack)[at];
    is_value |= value.isBool() || value.isInt() || value.isDouble();
    visit_tensors(value, [&](const Tensor& t) {
      if (!t.defined()) return;
      if (!out.defined()) out = t;
      bytes += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
    });
    value = swap_out(value, swap);
  }
  double flops = out.defined() && !in.empty() ? count_flops(schema.name(), in, out) : 0;
  launch(*swap.device, time_kernel(flops, bytes));
  // The shape or the value of what comes back is known to the device first.
  if (is_value || op.hasTag(at::Tag::dynamic_output_shape) ||
      op.hasTag(at::Tag::data_dependent_output))
    wait(*swap.device);
}

Tensor empty(
    at::IntArrayRef size, c10::optional<at::ScalarType> dtype, c10::optional<at::Layout>,
    c10::optional<at::Device> device, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      size, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, c10::optional<at::ScalarType> dtype,
    c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>) {
  c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      size, stride, device_allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

// The time of a copy between host and device, and whether the host waits for it: always, unless it
// said that it need not and its memory is pinned.
Tensor copy_from(const Tensor& from, const Tensor& to, bool non_blocking) {
  const auto& s = machine().settings;
  at::AutoDispatchBelowADInplaceOrView below;
  bool between = is_ours(from) && is_ours(to);
  auto device = is_ours(to) ? to.device() : from.device();
  double bytes = static_cast<double>(to.numel()) * static_cast<double>(to.element_size());
  if (between && from.device() == to.device()) {
    launch(device, time_kernel(0, 2 * bytes));
  } else {
    double us = std::max(s.copy_us, bytes / s.copy_gbps / 1e3);
    launch(device, static_cast<Ns>(us * 1e3), Doing::copy);
    const Tensor& host = is_ours(to) ? from : to;
    if (!between && !(non_blocking && is_pinned(host.storage().data()))) wait(device);
  }
  Tensor target = is_ours(to) ? on_host(to) : to;
  target.copy_(is_ours(from) ? on_host(from) : from);
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar read_value(const Tensor& tensor) {
  const auto& s = machine().settings;
  launch(tensor.device(), static_cast<Ns>(s.copy_us * 1e3), Doing::copy);
  wait(tensor.device());
  return on_host(tensor).item();
}

double count_conv_flops(const Tensor& out, const Tensor& weight) {
  double each = product(weight.sizes()) / static_cast<double>(weight.size(0));
  return 2 * product(out.sizes()) * each;
}

c10::optional<Tensor> maybe_on_host(const c10::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? c10::make_optional(on_host(*tensor)) : c10::nullopt;
}

Tensor convolve(
    const Tensor& input, const Tensor& weight, const c10::optional<Tensor>& bias,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  at::AutoDispatchBelowADInplaceOrView below;
  Tensor out = at::convolution(
      on_host(input), on_host(weight), maybe_on_host(bias), stride, padding, dilation, transposed,
      output_padding, groups);
  launch(input.device(), time_kernel(count_conv_flops(out, weight), 0));
  return on_device(out, input.device());
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(
    const Tensor& grad, const Tensor& input, const Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  at::AutoDispatchBelowADInplaceOrView below;
  std::array<int64_t, 1> bias_size{transposed ? weight.size(1) * groups : weight.size(0)};
  auto [a, b, c] = at::convolution_backward(
      on_host(grad), on_host(input), on_host(weight), at::OptionalIntArrayRef(bias_size), stride,
      padding, dilation, transposed, output_padding, groups, mask);
  launch(input.device(), time_kernel(2 * count_conv_flops(grad, weight), 0));
  auto back = [&](const Tensor& t) { return t.defined() ? on_device(t, input.device()) : t; };
  return {back(a), back(b), back(c)};
}

// Torch chooses fused cells on every accelerator; here they consist of the operators that they fuse.
Tensor with_bias(const Tensor& gates, const c10::optional<Tensor>& bias) {
  return bias && bias->defined() ? gates.add(*bias) : gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& from_input, const Tensor& from_hidden, const Tensor& cell,
    const c10::optional<Tensor>& input_bias, const c10::optional<Tensor>& hidden_bias) {
  Tensor gates = with_bias(from_input, input_bias).add(with_bias(from_hidden, hidden_bias));
  auto parts = gates.chunk(4, 1);
  Tensor next = parts[1].sigmoid().mul(cell).add(parts[0].sigmoid().mul(parts[2].tanh()));
  return {parts[3].sigmoid().mul(next.tanh()), next, gates};
}

std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& from_input, const Tensor& from_hidden, const Tensor& hidden,
    const c10::optional<Tensor>& input_bias, const c10::optional<Tensor>& hidden_bias) {
  auto in = with_bias(from_input, input_bias).chunk(3, 1);
  auto own = with_bias(from_hidden, hidden_bias).chunk(3, 1);
  Tensor reset = in[0].add(own[0]).sigmoid();
  Tensor keep = in[1].add(own[1]).sigmoid();
  Tensor fresh = in[2].add(reset.mul(own[2])).tanh();
  return {hidden.sub(fresh).mul(keep).add(fresh), fresh};
}

void record_stream(Tensor&, at::Stream) {}  // memory is never given to another stream here

void register_cells(torch::Library& m) {
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_gru_cell", gru_cell);
}

// Attention is made of the operators that it consists of: no fused kernel, and none to choose.
void choose_attention(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, int64_t{0});
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

// Torch would make the outputs of these itself and then call the variant that fills them: a second
// way through the dispatcher for each kernel, which the host of a real device does not take.
void register_structured(torch::Library& m) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    auto op = dispatcher.findOp(name);
    if (!op || name.name.rfind("aten::", 0) != 0 ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional))
      continue;
    auto overload = name.overload_name.empty() ? "" : "." + name.overload_name;
    m.impl(
        (name.name.substr(6) + overload).c_str(),
        torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_structured(m);
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", read_value);
  m.impl("resize_", at::native::resize_);
  m.impl("view", at::native::view);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("convolution_overrideable", convolve);
  m.impl("convolution_backward_overrideable", convolve_backward);
  m.impl("record_stream", record_stream);
  register_cells(m);
  m.impl("_fused_sdp_choice", torch::CppFunction::makeFromBoxedFunction<&choose_attention>());
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_cells(m); }

// Autocast: cast what is a floating-point tensor of ours, then call the operator again.
template <bool is_lower>
void cast(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::AutocastPrivateUse1);
  auto to = is_lower ? at::autocast::get_autocast_dtype(kDevice) : at::kFloat;
  for (size_t at = stack->size() - op.schema().arguments().size(); at < stack->size(); ++at) {
    auto& value = (*stack)[at];
    if (value.isTensor() && is_ours(value.toTensor()))
      value = at::autocast::cached_cast(to, value.toTensor(), kDevice);
  }
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  for (auto name : {"linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "conv1d", "conv2d",
                    "conv3d", "scaled_dot_product_attention"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<true>>());
  for (auto name : {"cross_entropy_loss", "nll_loss", "mse_loss", "layer_norm", "log_softmax.int",
                    "softmax.int", "binary_cross_entropy_with_logits", "exp", "pow.Tensor_Scalar"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&cast<false>>());
}

// The device's memory as the host sees it, without waiting for anything: for exchanges.
TORCH_LIBRARY(emu, m) { m.def("on_host(Tensor(a) self) -> Tensor(a)"); }
TORCH_LIBRARY_IMPL(emu, PrivateUse1, m) { m.impl("on_host", on_host); }

}  // namespace
}  // namespace emu
