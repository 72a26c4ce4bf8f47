// Memory, streams, events, graphs and the current device: torch's interfaces of an accelerator.
#include "device.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <set>

namespace emu {

namespace {

struct Event {
  MomentPtr mark;
  pid_t pid;
};

thread_local int t_device = 0;
thread_local std::map<int, int64_t> t_streams;
std::atomic<uint32_t> contexts{0};
std::atomic<pid_t> owner{0};
std::atomic<int64_t> next_stream{1};
std::mutex pinned_mutex;
std::map<const char*, size_t> pinned_blocks;

void check_capture(const char* what) {
  TORCH_CHECK(!machine().is_capturing(), what, " is not permitted while a stream is captured");
}

}  // namespace

int current_device() { return t_device; }

int64_t current_stream(int device) {
  auto found = t_streams.find(device);
  return found == t_streams.end() ? 0 : found->second;
}

void touch(int device) {
  TORCH_CHECK(
      device >= 0 && device < machine().settings.devices, "there is no device emu:", device);
  pid_t none = 0;
  pid_t self = getpid();
  if (!owner.compare_exchange_strong(none, self))
    TORCH_CHECK(none == self, "Cannot re-initialize emu in a forked process; use 'spawn'");
  contexts.fetch_or(1u << device);
}

namespace {

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t n) override {
    c10::Device device(kDevice, static_cast<c10::DeviceIndex>(current_device()));
    touch(device.index());
    void* data = n ? c10::alloc_cpu(n) : nullptr;
    return {data, data, &c10::free_cpu, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

void free_pinned(void* data) {
  if (!data) return;
  {
    std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks.erase(static_cast<const char*>(data));
  }
  c10::free_cpu(data);
}

struct PinnedMemory final : at::HostAllocator {
  c10::DataPtr allocate(size_t n) override {
    touch(current_device());
    void* data = n ? c10::alloc_cpu(n) : nullptr;
    if (data) {
      std::lock_guard<std::mutex> lock(pinned_mutex);
      pinned_blocks[static_cast<const char*>(data)] = n;
    }
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, size_t n) const override { default_copy_data(to, from, n); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

DeviceMemory device_memory;
PinnedMemory pinned_memory;
REGISTER_ALLOCATOR(kDevice, &device_memory);
REGISTER_HOST_ALLOCATOR(kDevice, &pinned_memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Device device(int index) {
    return {kDevice, static_cast<c10::DeviceIndex>(index)};
  }
  static c10::Stream stream(int index, int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, device(index), id);
  }
  c10::DeviceType type() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device to) const override {
    auto before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return device(t_device); }
  void setDevice(c10::Device to) const override {
    TORCH_CHECK(to.index() < deviceCount(), "there is no device ", to);
    if (to.index() >= 0) t_device = to.index();
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    if (to.index() >= 0) t_device = to.index();
  }
  c10::Stream getStream(c10::Device of) const override {
    int index = of.index() < 0 ? t_device : of.index();
    return stream(index, current_stream(index));
  }
  c10::Stream getDefaultStream(c10::Device of) const override {
    return stream(of.index() < 0 ? t_device : of.index(), 0);
  }
  c10::Stream getNewStream(c10::Device of, int) const override {
    int index = of.index() < 0 ? t_device : of.index();
    touch(index);
    return stream(index, next_stream++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    return getNewStream(of, 0);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    auto before = getStream(to.device());
    t_streams[to.device_index()] = to.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(machine().settings.devices);
  }
  bool isStreamCapturing(const c10::Stream& of) const override {
    return machine().is_capturing(of.device_index(), of.id());
  }
  bool queryStream(const c10::Stream& of) const override {
    check_capture("querying a stream");
    return machine().has_passed(machine().mark(of.device_index(), of.id()));
  }
  void synchronizeStream(const c10::Stream& of) const override {
    check_capture("synchronizing a stream");
    touch(of.device_index());
    machine().synchronize(of.device_index(), of.id());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    check_capture("synchronizing a device");
    touch(index < 0 ? t_device : index);
    machine().synchronize(index < 0 ? t_device : index);
  }
  void record(
      void** event, const c10::Stream& on, const c10::DeviceIndex, const c10::EventFlag flag)
      const override {
    if (flag == c10::EventFlag::BACKEND_DEFAULT) check_capture("recording a timed event");
    touch(on.device_index());
    if (!*event) *event = new Event{nullptr, getpid()};
    static_cast<Event*>(*event)->mark = machine().mark(on.device_index(), on.id());
  }
  void block(void* event, const c10::Stream& on) const override {
    if (!event) return;
    touch(on.device_index());
    machine().gate(on.device_index(), on.id(), static_cast<Event*>(event)->mark, 0, false);
  }
  bool queryEvent(void* event) const override {
    check_capture("querying an event");
    return !event || machine().has_passed(static_cast<Event*>(event)->mark);
  }
  void synchronizeEvent(void* event) const override {
    check_capture("synchronizing an event");
    if (event) machine().wait_for(static_cast<Event*>(event)->mark);
  }
  double elapsedTime(void* first, void* last, const c10::DeviceIndex) const override {
    Ns begun = static_cast<Event*>(first)->mark->at.load();
    Ns ended = static_cast<Event*>(last)->mark->at.load();
    TORCH_CHECK(begun >= 0 && ended >= 0, "an event has not been passed yet");
    return static_cast<double>(ended - begun) / 1e6;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    auto* own = static_cast<Event*>(event);
    if (!own) return;
    if (own->pid != getpid()) {  // a driver's guard throws here, in a destructor
      std::fputs("emu: an event was destroyed in a forked process\n", stderr);
      std::abort();
    }
    delete own;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return machine().settings.devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return contexts.load() >> index & 1;
  }
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    Guard().setDevice(Guard::device(index));
  }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(t_device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto before = getCurrentDevice();
    if (index >= 0) setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  c10::Device getDeviceFromPtr(void*) const override { return Guard::device(t_device); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    auto before = exchangeDevice(storage.device().index());
    auto data = device_memory.allocate(size);
    exchangeDevice(before);
    size_t kept = std::min(size, storage.nbytes());
    if (kept) std::memcpy(data.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(data));
    storage.set_nbytes(size);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();  // kernels are the host's, and so is their chance
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::detail::createCPUGenerator();
  }
};

// Captures times only: a replay takes as long as what was captured and computes nothing anew.
struct Graph final : at::GraphImplInterface {
  explicit Graph(const at::GraphImplArgs&) {}
  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override {
    int device = current_device();
    touch(device);
    machine().begin_capture(device, current_stream(device));
  }
  void capture_end() override { captured_ = machine().end_capture(); }
  void instantiate() override {}
  void replay() override {
    int device = current_device();
    touch(device);
    machine().launch(device, current_stream(device), captured_.length, Doing::kernel);
  }
  void reset() override { captured_ = {}; }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string&) override {}

 private:
  Captured captured_;
};

struct Registered {
  Registered() {
    at::RegisterPrivateUse1HooksInterface(new Hooks());
    at::GraphImplRegistry()->Register("EMU", [](const at::GraphImplArgs& args) {
      return std::unique_ptr<at::GraphImplInterface>(new Graph(args));
    });
  }
} registered;

}  // namespace

c10::Allocator* device_allocator() { return &device_memory; }

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> lock(pinned_mutex);
  auto next = pinned_blocks.upper_bound(static_cast<const char*>(data));
  if (next == pinned_blocks.begin()) return false;
  --next;
  return static_cast<const char*>(data) < next->first + next->second;
}

}  // namespace emu

// What bench/emu calls through ctypes. A handle is a pointer to a MomentPtr.
#pragma GCC visibility push(default)
extern "C" {

int emu_configure(const char* name, double value) {
  auto& s = emu::machine().settings;
  const std::pair<const char*, double*> all[] = {
      {"kernel_us", &s.kernel_us}, {"math_gflops", &s.math_gflops},
      {"memory_gbps", &s.memory_gbps}, {"copy_gbps", &s.copy_gbps}, {"copy_us", &s.copy_us},
      {"launch_us", &s.launch_us}, {"depth", &s.depth}, {"spin", &s.spin},
      {"devices", &s.devices}};
  for (auto& [known, place] : all)
    if (!std::strcmp(known, name)) {
      *place = value;
      return 0;
    }
  return -1;
}

int emu_device_count() { return static_cast<int>(emu::machine().settings.devices); }
int emu_current_device() { return emu::current_device(); }
uint32_t emu_contexts() { return emu::contexts.load(); }
int emu_is_bad_fork() { return emu::owner.load() && emu::owner.load() != getpid(); }
int emu_is_capturing() { return emu::machine().is_capturing(); }

// A kernel of so many nanoseconds on the current stream, which computes nothing.
void emu_kernel(int64_t length_ns) {
  int device = emu::current_device();
  emu::contexts.fetch_or(1u << device);
  emu::machine().launch(device, emu::current_stream(device), length_ns, emu::Doing::kernel);
}

void* emu_moment() { return new emu::MomentPtr(std::make_shared<emu::Moment>()); }
void* emu_mark(int device, int64_t stream) {
  return new emu::MomentPtr(emu::machine().mark(device, stream));
}
void emu_free(void* handle) { delete static_cast<emu::MomentPtr*>(handle); }
int64_t emu_at(void* handle) { return (*static_cast<emu::MomentPtr*>(handle))->at.load(); }
int emu_has_passed(void* handle) {
  return emu::machine().has_passed(*static_cast<emu::MomentPtr*>(handle));
}
void emu_wait_for(void* handle) { emu::machine().wait_for(*static_cast<emu::MomentPtr*>(handle)); }
void emu_open(void* handle, int64_t at_ns) {
  emu::machine().open(*static_cast<emu::MomentPtr*>(handle), at_ns);
}
void* emu_gate(int device, int64_t stream, void* handle, int64_t length_ns, int occupies) {
  return new emu::MomentPtr(emu::machine().gate(
      device, stream, *static_cast<emu::MomentPtr*>(handle), length_ns, occupies));
}

int64_t emu_log(int device, emu::Stretch* rows, int64_t most) {
  auto log = emu::machine().log(device);
  int64_t count = std::min<int64_t>(most, static_cast<int64_t>(log.size()));
  if (rows) std::memcpy(rows, log.data(), count * sizeof(emu::Stretch));
  return static_cast<int64_t>(log.size());
}
void emu_clear_log() { emu::machine().clear_log(); }
}
#pragma GCC visibility pop
