// The time of emulated devices: what is queued on which stream, when it starts and when it is done.
//
// Nothing here knows of torch. A stream is a queue whose times follow from one another: work starts
// when it is queued, when the work before it is done, and when what it waits for has happened,
// whichever is last. So no thread has to act as a device: whoever asks has the queues brought up to
// date. That keeps times exact on a machine whose cores are busy, as a device's are.
// What only the future tells (an exchange between processes) is a `Moment` that somebody sets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace emu {

using Ns = int64_t;

constexpr int kMostDevices = 16;

// All of CLOCK_MONOTONIC, as Python's time.monotonic_ns().
Ns now();

// A point in a stream's time; -1 while nobody knows when it will be.
struct Moment {
  std::atomic<Ns> at{-1};
};
using MomentPtr = std::shared_ptr<Moment>;

// What a device did: the numbers are those of bench/emu/__init__.py:Doing.
enum class Doing : int32_t { kernel = 0, copy = 1, exchange = 2 };

// One entry of a device's log.
struct Stretch {
  Ns start;
  Ns end;
  int32_t doing;
  int32_t stream;
};

struct Settings {
  double kernel_us = 3.0;         // of any kernel, at least
  double math_gflops = 50000.0;   // of matrix products and convolutions
  double memory_gbps = 1000.0;    // of what a kernel reads and writes
  double copy_gbps = 12.0;        // between host and device
  double copy_us = 8.0;           // of any copy, at least
  double launch_us = 0.0;         // of the host, for each launch, beside what it really takes
  double depth = 1024;            // launches in a stream's queue; then the host is held up
  double spin = 0;                // 1: a host that waits keeps its core busy
  double devices = 4;
};

struct Work {
  Ns queued;
  Ns length;
  MomentPtr gate;    // not before this; null: nothing to wait for
  MomentPtr mark;    // set to when this is done
  Doing doing;
  bool occupies;     // the device counts as busy while it waits for the gate
};

struct Stream {
  std::deque<Work> pending;  // start not yet known: a gate is closed
  std::deque<Ns> ends;       // of what is queued or running
  Ns free_at = 0;
};

// What a graph has recorded; replayed as one launch.
struct Captured {
  Ns length = 0;
  int64_t launches = 0;
};

class Machine {
 public:
  Settings settings;

  void launch(int device, int64_t stream, Ns length, Doing doing);
  // A point behind everything queued so far.
  MomentPtr mark(int device, int64_t stream);
  // Nothing queued later starts before the moment. With `occupies` it is the device that waits, in
  // a kernel that takes `length` more from then on.
  MomentPtr gate(int device, int64_t stream, MomentPtr moment, Ns length, bool occupies);
  bool has_passed(const MomentPtr& moment);
  // The host waits, asleep or spinning.
  void wait_for(const MomentPtr& moment);
  void synchronize(int device, int64_t stream);
  void synchronize(int device);
  void open(const MomentPtr& moment, Ns at);

  void begin_capture(int device, int64_t stream);
  Captured end_capture();
  bool is_capturing(int device, int64_t stream);
  bool is_capturing() const { return capturing_.load() >= 0; }

  std::vector<Stretch> log(int device);
  void clear_log();

 private:
  using Key = std::pair<int, int64_t>;
  Stream& at(int device, int64_t stream);
  void advance();
  bool advance(const Key& key, Stream& stream);
  void hold_up(std::unique_lock<std::mutex>& lock, Stream& stream);
  void sleep_until(Ns moment) const;

  std::mutex mutex_;
  std::condition_variable opened_;
  std::map<Key, Stream> streams_;
  std::vector<Stretch> logs_[kMostDevices];
  std::atomic<int64_t> capturing_{-1};  // device << 32 | stream
  Captured captured_;
};

Machine& machine();

}  // namespace emu
