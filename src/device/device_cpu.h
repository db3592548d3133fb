/* SPDX-License-Identifier: BSD-3-Clause */
#pragma once

#include "device/device.h"

extern const TrsDeviceOps trs_device_cpu;
