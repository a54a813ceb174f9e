// Stands in for the header that a CUDA build of PyTorch generates.
#pragma once
#define C10_CUDA_BUILD_SHARED_LIBS
