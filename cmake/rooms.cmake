# quern_room(NAME [FAST | SMALL] [LINK libs...]): the folder src/NAME as one
# object library, qn_NAME (slashes become underscores).  A file placed in the
# folder is built; there is no list to keep.  FAST: its loops are waited for
# (-O3).  SMALL: nothing in it is (-Os).
function(quern_room name)
  cmake_parse_arguments(ROOM "FAST;SMALL" "" "LINK" ${ARGN})
  string(REPLACE "/" "_" target "qn_${name}")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/src/${name}/*.c)
  # Rooms inside this one are libraries of their own.
  if(name STREQUAL "backend/cpu")
    quern_isa_sources(sources)
  endif()
  if(NOT sources)
    add_library(${target} INTERFACE)
    return()
  endif()
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src
                                              ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${target} PUBLIC ${ROOM_LINK})
  # After the build type's own; kernels have flags of their own (isa.cmake).
  if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT QUERN_SANITIZE)
    if(ROOM_SMALL)
      target_compile_options(${target} PRIVATE -Os)
    elseif(NOT ROOM_FAST)
      target_compile_options(${target} PRIVATE -O2)
    endif()
  endif()
endfunction()

# quern_test_room(NAME): the room once more, qn_NAME_test, with what only test
# builds have (QUERN_TEST_BUILD): faults that a test asks for.
function(quern_test_room name)
  string(REPLACE "/" "_" room "qn_${name}")
  get_target_property(sources ${room} SOURCES)
  add_library(${room}_test OBJECT EXCLUDE_FROM_ALL ${sources})
  target_link_libraries(${room}_test PUBLIC
                        $<TARGET_PROPERTY:${room},INTERFACE_LINK_LIBRARIES>)
  target_include_directories(${room}_test PUBLIC
                             $<TARGET_PROPERTY:${room},INCLUDE_DIRECTORIES>)
  target_compile_definitions(${room}_test PRIVATE QUERN_TEST_BUILD
                             $<TARGET_PROPERTY:${room},COMPILE_DEFINITIONS>)
endfunction()
