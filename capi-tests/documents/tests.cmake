# Executes the commands and programs of README.md and CONTRIBUTING.md.

find_program(PKG_CONFIG_EXECUTABLE NAMES pkg-config pkgconf)
if(Python3_FOUND AND PKG_CONFIG_EXECUTABLE)
  get_filename_component(pkg_config_directory ${PKG_CONFIG_EXECUTABLE} DIRECTORY)
  foreach(document IN ITEMS README CONTRIBUTING)
    nexar_test(documents ${document}
      ${CMAKE_COMMAND} -E env "PATH=$ENV{PATH}:${pkg_config_directory}"
      ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/documents/documents.py
        ${PROJECT_SOURCE_DIR}/${document}.md ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  endforeach()
else()
  message(STATUS "No Python or no pkg-config found: the documents are not tested")
endif()
