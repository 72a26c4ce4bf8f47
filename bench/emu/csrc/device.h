// The emulated device as torch sees it; what device.cpp and ops.cpp share.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "queue.h"

namespace emu {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

// The calling thread's device, and its stream on a device.
int current_device();
int64_t current_stream(int device);

// Called before anything that needs a context on a device: makes it, and refuses to in a process
// that was forked from one that has used a device, as a driver does.
void touch(int device);

c10::Allocator* device_allocator();
bool is_pinned(const void* data);

}  // namespace emu
