// How a task tells the master's pass that its process knows tfsched's ops and schedules what it sends.
#ifndef TFSCHED_CC_TRANSPORT_CAPABILITY_H_
#define TFSCHED_CC_TRANSPORT_CAPABILITY_H_

#include <string>

#include "tensorflow/core/framework/device_attributes.pb.h"

namespace tfsched {

// Travels in the description of each of the task's devices, which TensorFlow hands through for people to read.
constexpr char kCapability[] = " [tfsched]";

inline void MarkCapable(tensorflow::DeviceAttributes* device) {
  device->mutable_physical_device_desc()->append(kCapability);
}

inline bool IsCapable(const tensorflow::DeviceAttributes& device) {
  return device.physical_device_desc().find(kCapability) != std::string::npos;
}

}  // namespace tfsched

#endif  // TFSCHED_CC_TRANSPORT_CAPABILITY_H_
