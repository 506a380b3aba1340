# The toolchain file of tools/cross-macos: Debian's clang and ld64.lld make programs for arm64 macOS 13 and later. Give
# AD_CROSS_SDK (the folder that `cross-macos sdk` makes) and AD_CROSS_PREFIX (where the libraries are).
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_VERSION 22.0.0) # macOS 13
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET arm64-apple-macos13.0)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES AD_CROSS_SDK AD_CROSS_PREFIX)

set(CMAKE_OSX_SYSROOT "${AD_CROSS_SDK}")
set(CMAKE_OSX_DEPLOYMENT_TARGET 13.0 CACHE STRING "")
set(CMAKE_OSX_ARCHITECTURES arm64 CACHE STRING "")
set(CMAKE_AR llvm-ar CACHE FILEPATH "")
set(CMAKE_RANLIB llvm-ranlib CACHE FILEPATH "")
set(CMAKE_INSTALL_NAME_TOOL llvm-install-name-tool CACHE FILEPATH "")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-fuse-ld=lld")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-fuse-ld=lld")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-fuse-ld=lld")

# Frameworks are looked for below the SDK, which must therefore be a root as well.
set(CMAKE_FIND_ROOT_PATH "${AD_CROSS_PREFIX}" "${AD_CROSS_SDK}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
