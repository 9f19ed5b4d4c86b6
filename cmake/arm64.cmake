# The toolchain of tools/arm64.sh: Debian's cross compiler, the target's libraries unpacked into SNUG_SYSROOT, and
# programs run by qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SNUG_SYSROOT)
list(APPEND CMAKE_FIND_ROOT_PATH ${SNUG_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
# Libraries that our libraries need are found where these are.
set(target_libraries ${SNUG_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${target_libraries} -Wl,-rpath-link,${target_libraries}/openblas-openmp")
set(SNUG_NATIVE OFF CACHE BOOL "")
