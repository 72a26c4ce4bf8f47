#include "queue.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <time.h>

namespace emu {

namespace {
constexpr size_t kMostLogged = 4000000;  // a device's log: 96 MB
constexpr auto kPoll = std::chrono::milliseconds(1);
}  // namespace

Ns now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

Machine& machine() {
  static Machine* made = new Machine();  // never destroyed: threads may outlive main
  return *made;
}

Stream& Machine::at(int device, int64_t stream) { return streams_[{device, stream}]; }

// Work out the times of all queued work whose gates are known.
void Machine::advance() {
  bool moved = true;
  while (moved) {  // what one stream marks may be what another waits for
    moved = false;
    for (auto& [key, stream] : streams_) moved |= advance(key, stream);
  }
}

bool Machine::advance(const Key& key, Stream& stream) {
  bool moved = false;
  auto& log = logs_[key.first];
  auto keep = [&](Ns start, Ns end, Doing doing) {
    if (end > start && log.size() < kMostLogged)
      log.push_back({start, end, static_cast<int32_t>(doing), static_cast<int32_t>(key.second)});
  };
  while (!stream.pending.empty()) {
    Work& work = stream.pending.front();
    Ns start = std::max(work.queued, stream.free_at);
    if (work.gate) {
      Ns opened = work.gate->at.load();
      if (opened < 0) break;
      if (work.occupies) keep(start, opened, work.doing);
      start = std::max(start, opened);
    }
    stream.free_at = start + work.length;
    keep(start, stream.free_at, work.doing);
    if (work.mark) work.mark->at.store(stream.free_at);
    stream.ends.push_back(stream.free_at);
    stream.pending.pop_front();
    moved = true;
  }
  Ns passed = now();
  while (!stream.ends.empty() && stream.ends.front() <= passed) stream.ends.pop_front();
  return moved;
}

// The launch queue is full: the host goes on when the device takes the next piece of work.
void Machine::hold_up(std::unique_lock<std::mutex>& lock, Stream& stream) {
  while (stream.pending.size() + stream.ends.size() >= settings.depth) {
    if (stream.ends.empty()) {
      opened_.wait_for(lock, kPoll);
    } else {
      Ns until = stream.ends.front();
      lock.unlock();
      sleep_until(until);
      lock.lock();
    }
    advance();
  }
}

void Machine::launch(int device, int64_t stream, Ns length, Doing doing) {
  if (is_capturing(device, stream)) {
    std::lock_guard<std::mutex> lock(mutex_);
    captured_.length += length;
    captured_.launches += 1;
    return;
  }
  if (settings.launch_us > 0) {
    Ns until = now() + static_cast<Ns>(settings.launch_us * 1e3);
    while (now() < until) {
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  Stream& own = at(device, stream);
  if (own.pending.empty()) advance({device, stream}, own); else advance();
  hold_up(lock, own);
  own.pending.push_back({now(), length, nullptr, nullptr, doing, false});
  advance({device, stream}, own);
}

MomentPtr Machine::mark(int device, int64_t stream) {
  return gate(device, stream, nullptr, 0, false);
}

MomentPtr Machine::gate(int device, int64_t stream, MomentPtr moment, Ns length, bool occupies) {
  auto mark = std::make_shared<Moment>();
  std::unique_lock<std::mutex> lock(mutex_);
  advance();
  Stream& own = at(device, stream);
  hold_up(lock, own);
  own.pending.push_back({now(), length, std::move(moment), mark, Doing::exchange, occupies});
  advance();
  return mark;
}

bool Machine::has_passed(const MomentPtr& moment) {
  if (moment->at.load() < 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    advance();
  }
  Ns at = moment->at.load();
  return at >= 0 && at <= now();
}

void Machine::wait_for(const MomentPtr& moment) {
  while (moment->at.load() < 0) {
    std::unique_lock<std::mutex> lock(mutex_);
    advance();
    if (moment->at.load() < 0 && settings.spin < 1) opened_.wait_for(lock, kPoll);
  }
  sleep_until(moment->at.load());
}

void Machine::synchronize(int device, int64_t stream) { wait_for(mark(device, stream)); }

void Machine::synchronize(int device) {
  std::vector<int64_t> ids;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, stream] : streams_)
      if (key.first == device) ids.push_back(key.second);
  }
  for (int64_t id : ids) synchronize(device, id);
}

void Machine::open(const MomentPtr& moment, Ns at) {
  std::lock_guard<std::mutex> lock(mutex_);
  moment->at.store(at);
  advance();
  opened_.notify_all();
}

void Machine::begin_capture(int device, int64_t stream) {
  if (is_capturing()) throw std::runtime_error("a stream is being captured already");
  captured_ = {};
  capturing_.store(static_cast<int64_t>(device) << 32 | stream);
}

Captured Machine::end_capture() {
  capturing_.store(-1);
  return captured_;
}

bool Machine::is_capturing(int device, int64_t stream) {
  return capturing_.load() == (static_cast<int64_t>(device) << 32 | stream);
}

std::vector<Stretch> Machine::log(int device) {
  std::lock_guard<std::mutex> lock(mutex_);
  advance();
  return logs_[device];
}

void Machine::clear_log() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& log : logs_) log.clear();
}

void Machine::sleep_until(Ns moment) const {
  if (settings.spin >= 1) {
    while (now() < moment) {
    }
    return;
  }
  timespec t{moment / 1000000000LL, moment % 1000000000LL};
  while (now() < moment) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

}  // namespace emu
