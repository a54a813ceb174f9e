# Everything is found, nothing is downloaded: ./setup installs the packages named here.
find_program(NEREUS_PYTHON NAMES python HINTS ${CMAKE_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
if(NOT NEREUS_PYTHON)
  find_program(NEREUS_PYTHON NAMES python3 REQUIRED)
endif()
set(Python3_EXECUTABLE ${NEREUS_PYTHON})
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Embed)

execute_process(
  COMMAND ${NEREUS_PYTHON} -c "import torch; print(torch.utils.cmake_prefix_path, end='')"
  OUTPUT_VARIABLE torch_prefix RESULT_VARIABLE torch_missing)
if(torch_missing)
  message(FATAL_ERROR "PyTorch is not installed for ${NEREUS_PYTHON}: run ./setup")
endif()
list(APPEND CMAKE_PREFIX_PATH ${torch_prefix})
find_package(Torch REQUIRED)
# Torch's headers are not ours to warn about.
add_library(nereus_torch INTERFACE)
target_link_libraries(nereus_torch INTERFACE ${TORCH_LIBRARIES})
target_include_directories(nereus_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_compile_definitions(nereus_torch INTERFACE AT_PER_OPERATOR_HEADERS)

# With a CUDA build of PyTorch, ours is one as well.
execute_process(
  COMMAND ${NEREUS_PYTHON} -c "import torch; print(torch.version.cuda or 'OFF', end='')"
  OUTPUT_VARIABLE NEREUS_CUDA)
if(NEREUS_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)  # A100; H100, H200. Newer devices compile it when they load it
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  execute_process(  # the wheel brings NCCL, in a package of its own
    COMMAND ${NEREUS_PYTHON} -c "import nvidia.nccl; print(nvidia.nccl.__path__[0], end='')"
    OUTPUT_VARIABLE nccl_package ERROR_QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_package}/include REQUIRED)
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_package}/lib REQUIRED)
  add_library(nereus_nvidia INTERFACE)
  target_include_directories(nereus_nvidia SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  target_link_libraries(nereus_nvidia INTERFACE CUDA::cudart ${NCCL_LIBRARY})
endif()

find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
if(NEREUS_TESTS)
  find_package(GTest REQUIRED)
  find_path(RAPIDCHECK_INCLUDE_DIR rapidcheck.h REQUIRED)
  find_library(RAPIDCHECK_LIBRARY rapidcheck REQUIRED)
endif()
