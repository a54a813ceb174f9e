// Products of small matrices of half precision by a warp (PTX: mma, ldmatrix, movmatrix), for the
// kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace nereus::cuda {

// A lane's share of an 8 × 8 matrix of 16-bit elements: row lane / 4, columns 2 · (lane % 4) and
// the next.
using Fragment = uint32_t;

__device__ inline Fragment packed(__nv_bfloat16, float first, float second) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const Fragment*>(&both);
}
__device__ inline Fragment packed(__half, float first, float second) {
  const __half2 both = __floats2half2_rn(first, second);
  return *reinterpret_cast<const Fragment*>(&both);
}

__device__ inline Fragment transposed(Fragment a) {
  Fragment out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(a));
  return out;
}

// Four 8 × 8 matrices from shared memory; lane 8 · i + j names row j (16 bytes) of matrix i.
__device__ inline void load_matrices(Fragment (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}
__device__ inline void load_transposed(Fragment (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address));
}

// c [16 × 8] += a [16 × 16] · b [16 × 8]. Of a: rows 0-7 and 8-15 of columns 0-7, then of columns
// 8-15; of b transposed: rows 0-7, 8-15; of c: rows lane / 4 (two elements), and eight rows
// further.
__device__ inline void multiply_add(__nv_bfloat16, float (&c)[4], const Fragment (&a)[4],
                                    Fragment b0, Fragment b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply_add(__half, float (&c)[4], const Fragment (&a)[4], Fragment b0,
                                    Fragment b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace nereus::cuda
