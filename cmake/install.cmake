# `cmake --install`. No installed file contains the prefix, so the installed tree can be moved.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(
  FILES
    ${nexar_lib}/${nexar_file}
    ${nexar_lib}/${nexar_soname}
    ${nexar_lib}/libnexar.so
  DESTINATION ${CMAKE_INSTALL_LIBDIR}
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
install(
  FILES ${nccl_directory}/libnccl.so.2 ${nccl_directory}/libnccl.so
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/nexar
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
    WORLD_READ WORLD_EXECUTE)
install(FILES ${nexar_lib}/libnexar.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(PROGRAMS ${nexar_run} DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/nexar.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# pkg-config
set(pc_directory ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
string(REGEX REPLACE "[^/]+" ".." prefix_from_pc ${pc_directory})
configure_file(cmake/nexar.pc.in nexar.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/nexar.pc DESTINATION ${pc_directory})

# find_package(nexar). Before 1.0 every minor version may break compatibility.
set(config_directory ${CMAKE_INSTALL_LIBDIR}/cmake/nexar)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
else()
  set(compatibility SameMajorVersion)
endif()
configure_package_config_file(cmake/nexarConfig.cmake.in nexarConfig.cmake
  INSTALL_DESTINATION ${config_directory}
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(nexarConfigVersion.cmake COMPATIBILITY ${compatibility})
install(
  FILES
    ${PROJECT_BINARY_DIR}/nexarConfig.cmake
    ${PROJECT_BINARY_DIR}/nexarConfigVersion.cmake
  DESTINATION ${config_directory})
