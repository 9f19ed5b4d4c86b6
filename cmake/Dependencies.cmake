# Everything here comes from the distribution's packages (see `make deps`).
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.40)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)

# OpenBLAS: the OpenMP flavour where there is one, since it starts no threads until it is asked for
# some (products are shared among threads of our own); else whichever the system has.
file(GLOB openblas_dirs /usr/lib/*/openblas-openmp)
find_library(OPENBLAS_LIBRARY NAMES openblas libopenblas.so.0 HINTS ${openblas_dirs}
             PATH_SUFFIXES openblas-openmp openblas openblas-pthread REQUIRED)
find_path(OPENBLAS_INCLUDE cblas.h HINTS ${openblas_dirs}
          PATH_SUFFIXES openblas-openmp openblas openblas-pthread
          PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}
                /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp REQUIRED)

add_library(snug_dependencies INTERFACE)
target_include_directories(snug_dependencies SYSTEM INTERFACE ${OPENBLAS_INCLUDE})
target_link_libraries(snug_dependencies INTERFACE ${OPENBLAS_LIBRARY} PkgConfig::YAML
    PkgConfig::JANSSON PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH Threads::Threads m)

# Formats of data, where their libraries are installed; what a build does not read it says so of.
option(SNUG_FORMATS "Read PNG, JPEG and HDF5 where libpng, libjpeg and libhdf5 are installed" ON)
if(SNUG_FORMATS)
    pkg_check_modules(PNG QUIET IMPORTED_TARGET libpng)
    pkg_check_modules(JPEG QUIET IMPORTED_TARGET libjpeg)
    pkg_check_modules(HDF5 QUIET IMPORTED_TARGET hdf5-serial)
    if(NOT HDF5_FOUND)
        pkg_check_modules(HDF5 QUIET IMPORTED_TARGET hdf5)
    endif()
    # Only the files that read a format know of its library.
    set(PNG_SOURCES src/data/image_png.c)
    set(JPEG_SOURCES src/data/image_jpeg.c)
    set(HDF5_SOURCES src/data/hdf5.c)
    foreach(format PNG JPEG HDF5)
        if(${format}_FOUND)
            set(format_${format}_FLAGS)
            foreach(folder ${${format}_INCLUDE_DIRS})
                list(APPEND format_${format}_FLAGS -isystem ${folder})
            endforeach()
            if(format STREQUAL "HDF5") # loaded when it is needed (src/data/hdf5.c), by the name its linker would use
                list(GET HDF5_LINK_LIBRARIES 0 library)
                get_filename_component(library ${library} REALPATH)
                get_filename_component(library ${library} NAME)
                string(REGEX MATCH "^.*[.]so[.][0-9]+" library ${library})
                set(HDF5_DEFINITION SNUG_HDF5_LIBRARY="${library}")
                target_link_libraries(snug_dependencies INTERFACE ${CMAKE_DL_LIBS})
            else()
                target_link_libraries(snug_dependencies INTERFACE ${${format}_LINK_LIBRARIES})
            endif()
            set_source_files_properties(${${format}_SOURCES} PROPERTIES
                COMPILE_DEFINITIONS "SNUG_HAS_${format};${${format}_DEFINITION}"
                COMPILE_OPTIONS "${format_${format}_FLAGS}")
            list(APPEND SNUG_FORMAT_DEFINITIONS SNUG_HAS_${format})
            list(APPEND SNUG_FORMAT_OPTIONS ${format_${format}_FLAGS})
        endif()
    endforeach()
endif()

# The disk tier without threads, where the library is installed; the kernel is asked when a run starts.
option(SNUG_URING "Use io_uring for the disk tier where liburing is installed" ON)
if(SNUG_URING)
    pkg_check_modules(URING QUIET IMPORTED_TARGET liburing)
    if(URING_FOUND)
        target_link_libraries(snug_dependencies INTERFACE PkgConfig::URING)
        set_source_files_properties(src/device/disk/port.c src/api/env.c PROPERTIES
            COMPILE_DEFINITIONS SNUG_HAS_URING)
    endif()
endif()

# What shows a run while it trains, where it is installed. Both are loaded when they are needed: with what they depend
# on they are larger than this program.
option(SNUG_WATCH "The full screen of snug monitor (ncurses) and its page (libmicrohttpd), where they are installed" ON)
if(SNUG_WATCH)
    pkg_check_modules(NCURSESW QUIET IMPORTED_TARGET ncursesw)
    pkg_check_modules(MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd)
    set(NCURSESW_SOURCES src/watch/screen.c)
    set(MICROHTTPD_SOURCES src/watch/http.c)
    foreach(part NCURSESW MICROHTTPD)
        if(${part}_FOUND)
            list(GET ${part}_LINK_LIBRARIES 0 library)
            file(GLOB library ${library}.[0-9] ${library}.[0-9][0-9]) # the name may be a linker's script
            list(GET library 0 library)
            get_filename_component(library ${library} NAME)
            set_source_files_properties(${${part}_SOURCES} PROPERTIES
                COMPILE_DEFINITIONS "SNUG_HAS_${part};SNUG_${part}_LIBRARY=\"${library}\"")
            target_link_libraries(snug_dependencies INTERFACE ${CMAKE_DL_LIBS})
        endif()
    endforeach()
endif()
