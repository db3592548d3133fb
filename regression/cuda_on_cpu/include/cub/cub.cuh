/* SPDX-License-Identifier: BSD-3-Clause */
/*
  Stand-in for the part of CUB that gpu/ uses: stable radix sort of pairs, distinct keys, and prefix
  sums.
*/
#pragma once

#include "cuda_on_cpu.h"
#include "races.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

namespace cub
{
struct DeviceRadixSort {
  /*
    As in CUB, a call without temp only returns the number of bytes that it needs there. In and out
    must not overlap.
  */
  template <class Key, class Value>
  static cudaError_t SortPairs(void *temp, size_t &temp_bytes, const Key *keys_in, Key *keys_out,
                               const Value *values_in, Value *values_out, int64_t n, int begin_bit,
                               int end_bit, cudaStream_t stream)
  {
    if (!temp) {
      temp_bytes = 256;
      return cudaSuccess;
    }
    if (temp_bytes < 256 || n < 0) return cudaErrorInvalidValue;
    cuda_on_cpu::count_sort(stream);
    cuda_on_cpu::enqueue(stream, "cub::DeviceRadixSort::SortPairs", [=] {
      const int bits = end_bit - begin_bit;
      const Key mask = bits >= static_cast<int>(8 * sizeof(Key)) ? ~Key(0) : (Key(1) << bits) - 1;
      std::vector<int64_t> order(static_cast<size_t>(n));

      cuda_on_cpu::races::touch(temp, temp_bytes, cuda_on_cpu::races::WRITE);
      std::iota(order.begin(), order.end(), int64_t(0));
      std::stable_sort(order.begin(), order.end(), [=](int64_t a, int64_t b) {
        return (keys_in[a] >> begin_bit & mask) < (keys_in[b] >> begin_bit & mask);
      });
      for (int64_t i = 0; i < n; i++) {
        keys_out[i] = keys_in[order[static_cast<size_t>(i)]];
        values_out[i] = values_in[order[static_cast<size_t>(i)]];
      }
      return true;
    });
    return cudaSuccess;
  }
};

struct DeviceSelect {
  /* The key and the first value of each run of equal keys. */
  template <class Keys, class Values, class KeysOut, class ValuesOut, class Number>
  static cudaError_t UniqueByKey(void *temp, size_t &temp_bytes, Keys keys_in, Values values_in,
                                 KeysOut keys_out, ValuesOut values_out, Number *number_out, int64_t n,
                                 cudaStream_t stream)
  {
    if (!temp) {
      temp_bytes = 256;
      return cudaSuccess;
    }
    if (temp_bytes < 256 || n < 0) return cudaErrorInvalidValue;
    cuda_on_cpu::enqueue(stream, "cub::DeviceSelect::UniqueByKey", [=] {
      int64_t found = 0;

      cuda_on_cpu::races::touch(temp, temp_bytes, cuda_on_cpu::races::WRITE);
      for (int64_t i = 0; i < n; i++) {
        if (i > 0 && keys_in[i] == keys_in[i - 1]) continue;
        keys_out[found] = keys_in[i];
        values_out[found++] = values_in[i];
      }
      *number_out = static_cast<Number>(found);
      return true;
    });
    return cudaSuccess;
  }
};

struct DeviceScan {
  /* Sums have the type of the input's elements. */
  template <class In, class Out>
  static cudaError_t ExclusiveSum(void *temp, size_t &temp_bytes, In in, Out out, int64_t n,
                                  cudaStream_t stream)
  {
    if (!temp) {
      temp_bytes = 256;
      return cudaSuccess;
    }
    if (temp_bytes < 256 || n < 0) return cudaErrorInvalidValue;
    cuda_on_cpu::enqueue(stream, "cub::DeviceScan::ExclusiveSum", [=] {
      typename std::iterator_traits<In>::value_type sum = 0;

      cuda_on_cpu::races::touch(temp, temp_bytes, cuda_on_cpu::races::WRITE);
      for (int64_t i = 0; i < n; i++) {
        const auto value = in[i];

        out[i] = sum;
        sum += value;
      }
      return true;
    });
    return cudaSuccess;
  }
};
} // namespace cub
