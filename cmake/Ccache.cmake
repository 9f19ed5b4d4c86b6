# ccache, where it is installed and no other launcher was asked for. A clone in another folder finds what this one
# compiled: paths under the source folder are taken relative to it.
option(SNUG_CCACHE "Compile through ccache where it is installed" ON)
find_program(CCACHE_PROGRAM ccache)
mark_as_advanced(CCACHE_PROGRAM)
if(SNUG_CCACHE AND CCACHE_PROGRAM)
    foreach(language C CUDA)
        if(NOT CMAKE_${language}_COMPILER_LAUNCHER AND NOT DEFINED ENV{CMAKE_${language}_COMPILER_LAUNCHER})
            set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
                CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
        endif()
    endforeach()
endif()
