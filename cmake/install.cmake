# What `make install` puts where, under the names that dependants look for:
# pkg-config mlxc and quern, find_package(MLXC) with the target mlxc.

install(TARGETS mlxc EXPORT MLXCTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mlx
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# The engine's own name for the same library.
install(CODE "
  execute_process(COMMAND \${CMAKE_COMMAND} -E create_symlink libmlxc.so
    \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libquern-engine.so)")
install(FILES ${PROJECT_SOURCE_DIR}/include/quern/ext.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)
install(EXPORT MLXCTargets FILE MLXCConfig.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/MLXC)
configure_file(${PROJECT_SOURCE_DIR}/cmake/mlxc.pc.in
               ${CMAKE_BINARY_DIR}/mlxc.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/mlxc.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(NOT QUERN_ENGINE_ONLY)
  install(TARGETS quern RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS libquern LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/include/quern/quern.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/quern)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/quern.pc.in
                 ${CMAKE_BINARY_DIR}/quern.pc @ONLY)
  if(NOT CMAKE_CROSSCOMPILING)
    install(DIRECTORY ${CMAKE_BINARY_DIR}/man/
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
  install(FILES ${CMAKE_BINARY_DIR}/quern.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
