# What keeps the program small and costs no speed.
#
# Functions that nothing calls are dropped: of the C API, the program uses a
# part.  Tables for unwinding are a twelfth of it and only exceptions of other
# languages would need them, which must not pass through C anyway; debuggers
# have their own (-g).  Addresses that are corrected at start take two bytes in
# place of 24 where the linker can do that.
add_compile_options(-ffunction-sections -fdata-sections)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-fno-asynchronous-unwind-tables -fno-unwind-tables)
endif()
if(APPLE)
  add_link_options(-Wl,-dead_strip)
else()
  add_link_options(-Wl,--gc-sections)
  include(CheckLinkerFlag)
  check_linker_flag(C -Wl,-z,pack-relative-relocs QUERN_PACKED_RELOCATIONS)
  if(QUERN_PACKED_RELOCATIONS)
    add_link_options(-Wl,-z,pack-relative-relocs)
  endif()
endif()
