# quern_room(NAME [LINK libs...]): the folder src/NAME as one object library,
# qn_NAME (slashes become underscores).  A file placed in the folder is built;
# there is no list to keep.
function(quern_room name)
  cmake_parse_arguments(ROOM "" "" "LINK" ${ARGN})
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
endfunction()
