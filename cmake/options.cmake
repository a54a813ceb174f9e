# Compiler settings that hold for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_STANDARD 17)  # kernels; CMake learned late that nvcc knows C++20
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(NEREUS_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, e.g. address,undefined or thread")
option(NEREUS_TESTS "Build the tests" ON)

set(warnings -Wall -Wextra -Werror -Wno-missing-field-initializers)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # GCC 13 raises these falsely: inside libstdc++ at -O3, and for proxies returned by value.
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-dangling-reference>")
endif()

# libtorch exports an older libstdc++'s std::filesystem, whose functions and a newer libstdc++'s do not
# fit together (remove_all then jumps to address 0): the compiler's libstdc++ has to come first. By its
# path, because some compilers take -lstdc++ for the static library, which comes last.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.so.6
                OUTPUT_VARIABLE libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE)
if(IS_ABSOLUTE "${libstdcxx}")
  add_link_options("SHELL:-Wl,--push-state,--no-as-needed ${libstdcxx} -Wl,--pop-state")
endif()

if(NEREUS_SANITIZE)
  # Their stacks are readable at -O1, and it compiles in half the time of -O2.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  add_compile_options(-fsanitize=${NEREUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${NEREUS_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>")  # inside std::regex
  endif()
  if(NEREUS_SANITIZE STREQUAL "thread")
    add_compile_options(-Wno-tsan)  # fences inside libstdc++ and torch: they may only cost reports
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # The two sloppiness flags let ccache work with precompiled headers; paths below the base directory
  # count as relative ones, so that several checkouts share what one of them compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_NOHASHDIR=1
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${CCACHE})
endif()
