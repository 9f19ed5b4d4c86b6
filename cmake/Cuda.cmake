# The CUDA device (SNUG_CUDA=ON): src/device/cuda. Its objects go into the library; everything still links as C.
set(SNUG_CUDA_ARCHITECTURES "90" CACHE STRING
    "GPU architectures to build for; 'release' means 75 80 86 89 90 and PTX for newer ones")
if(SNUG_CUDA_ARCHITECTURES STREQUAL "release")
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90)
else()
    set(CMAKE_CUDA_ARCHITECTURES ${SNUG_CUDA_ARCHITECTURES})
endif()
option(SNUG_CUDA_QUICK "Compile device code in the least time, to see that it compiles; it runs slowly" OFF)
set(SNUG_CUDA_BESIDE "" CACHE PATH "A build folder without CUDA: what does not know of CUDA is taken from its library")
enable_language(CUDA)
find_package(CUDAToolkit 12.4 REQUIRED)

file(GLOB cuda_sources CONFIGURE_DEPENDS src/device/cuda/*/*.cu)
file(GLOB cuda_c_sources CONFIGURE_DEPENDS src/device/cuda/*.c src/device/cuda/*/*.c)
list(APPEND SNUG_SOURCES ${cuda_c_sources})
list(REMOVE_DUPLICATES SNUG_SOURCES)

find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${CUDAToolkit_LIBRARY_DIR} REQUIRED)
find_path(CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)

add_library(snug_cuda OBJECT ${cuda_sources})
target_include_directories(snug_cuda PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_include_directories(snug_cuda SYSTEM PRIVATE ${CUDNN_INCLUDE})
# `snug env` names the architectures (nvcc splits definitions at commas and blanks).
string(REPLACE ";" "/" cuda_code "${CMAKE_CUDA_ARCHITECTURES}")
target_compile_definitions(snug_cuda PRIVATE _GNU_SOURCE SNUG_HAVE_CUDA SNUG_CUDA_CODE="${cuda_code}")
# A kernel launched on the default stream would escape its queue: an error.
target_compile_options(snug_cuda PRIVATE -std=c++20 -lineinfo --expt-relaxed-constexpr
    "SHELL:-Werror cross-execution-space-call,default-stream-launch"
    "SHELL:-Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")
target_link_libraries(snug_cuda PRIVATE CUDA::cudart_static)
# Products of warpgroups are instructions of 9.0 alone, no earlier and no later GPU's: machine code for them in every
# build, beside what the other files have.
if(NOT "90a" IN_LIST CMAKE_CUDA_ARCHITECTURES AND NOT "90a-real" IN_LIST CMAKE_CUDA_ARCHITECTURES)
    set_property(SOURCE src/device/cuda/products/grouped_wgmma.cu APPEND PROPERTY
        COMPILE_OPTIONS "--generate-code=arch=compute_90a,code=sm_90a")
endif()
if(SNUG_CUDA_QUICK)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)
        target_compile_options(snug_cuda PRIVATE --Ofast-compile=max)
    else()
        target_compile_options(snug_cuda PRIVATE "SHELL:-Xptxas -O0")
    endif()
endif()

# What of the library knows that there is CUDA: these files, and those of src/device/cuda that are not in every build.
set(cuda_aware src/api/env.c src/device/device.c src/device/cuda/cuda_kernels.c src/engine/device_choice.c)
set_property(SOURCE ${cuda_aware} APPEND PROPERTY COMPILE_DEFINITIONS SNUG_HAVE_CUDA)
target_include_directories(snug_dependencies SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE})

# Instead of the whole library: its files that know of CUDA before the library of a build without, whose own copies of
# them are then never asked for.
function(snug_cuda_beside folder)
    set(aware ${cuda_aware} ${cuda_c_sources})
    list(FILTER aware EXCLUDE REGEX "/declared/|/nvml[.]c$")
    list(REMOVE_DUPLICATES aware)
    add_library(snug_cuda_aware OBJECT ${aware})
    target_include_directories(snug_cuda_aware PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(snug_cuda_aware PRIVATE snug_flags snug_dependencies)
    add_library(snug INTERFACE)
    target_include_directories(snug INTERFACE ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(snug INTERFACE $<TARGET_OBJECTS:snug_cuda_aware> $<TARGET_OBJECTS:snug_cuda>
        ${folder}/libsnug.a snug_flags snug_dependencies)
endfunction()
# NVML is loaded at run time: the program starts on machines without a driver.
target_link_libraries(snug_dependencies INTERFACE CUDA::cublasLt ${CUDNN_LIBRARY}
    CUDA::cudart_static stdc++ ${CMAKE_DL_LIBS})
get_filename_component(cudnn_folder ${CUDNN_LIBRARY} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR} ${cudnn_folder})
list(REMOVE_DUPLICATES CMAKE_BUILD_RPATH)
