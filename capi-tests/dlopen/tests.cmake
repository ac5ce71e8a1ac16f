# Programs that load the library with dlopen, as Python and plug-in hosts do.

nexar_program(dlopen reload dlopen/reload.c)
# Only the header: the program finds every function with dlsym.
target_include_directories(dlopen.reload PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(dlopen.reload PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
nexar_test(dlopen reload dlopen.reload $<TARGET_FILE:nexar::nexar>)
