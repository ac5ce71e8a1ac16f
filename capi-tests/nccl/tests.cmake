# libnccl.so.2, the stand-in for NCCL.

add_library(nexar::nccl SHARED IMPORTED GLOBAL)
add_dependencies(nexar::nccl nexar_nccl)
set_target_properties(nexar::nccl PROPERTIES
  IMPORTED_LOCATION ${nccl_file} IMPORTED_SONAME libnccl.so.2)

foreach(name IN ITEMS configs semantics environment)
  nexar_program(nccl ${name} nccl/${name}.c)
  # Linked with libnexar.so too, so that both are in one process.
  target_link_libraries(nccl.${name} PRIVATE nexar::nccl nexar::nexar Threads::Threads)
endforeach()
nexar_test(nccl configs nccl.configs)
nexar_test(nccl semantics nccl.semantics)
set_tests_properties(nccl.semantics PROPERTIES ENVIRONMENT NEXAR_FAKE_DEVICES=4)
foreach(n IN ITEMS 1 3)
  nexar_test(nccl environment.${n} nexar::run -n ${n} $<TARGET_FILE:nccl.environment>)
endforeach()

# Device memory, on the fake driver.
nexar_program(nccl device_memory nccl/device_memory.c)
target_link_libraries(nccl.device_memory PRIVATE
  fake_cuda_driver nexar::nccl nexar::nexar Threads::Threads)
nexar_test(nccl device_memory nccl.device_memory)
set_tests_properties(nccl.device_memory PROPERTIES
  ENVIRONMENT "FAKECUDA_DEVICES=4;NEXAR_FAKE_DEVICES=2")

nexar_unwatched_test(nccl symbols sh ${CMAKE_CURRENT_SOURCE_DIR}/nccl/symbols.sh
  ${CMAKE_NM} ${CMAKE_READELF}
  ${nccl_file} ${nccl_symbols} ${CMAKE_CURRENT_SOURCE_DIR}/nccl/torch_symbols.txt)
nexar_unwatched_test(nccl dynamic_section sh ${CMAKE_CURRENT_SOURCE_DIR}/abi/dynamic_section.sh
  ${CMAKE_READELF} ${nccl_file} libnccl.so.2)
nexar_unwatched_test(nccl same_build sh ${CMAKE_CURRENT_SOURCE_DIR}/nccl/same_build.sh
  $<TARGET_FILE:nexar::nexar> ${nccl_file})

# Programs written for NCCL. Their packages are fetched from the Python package index; where that
# cannot be reached they are skipped.
set(pypi_cache ${PROJECT_BINARY_DIR}/pypi)
function(nexar_client_test name)
  nexar_test(nccl ${name} sh ${ARGN})
  set_tests_properties(nccl.${name} PROPERTIES SKIP_RETURN_CODE 77)
endfunction()
if(Python3_FOUND)
  foreach(client IN ITEMS vllm_calls cupy_calls cupy_init_all)
    nexar_client_test(${client}.4 ${CMAKE_CURRENT_SOURCE_DIR}/nccl/clients/client.sh ${client}
      ${Python3_EXECUTABLE} $<TARGET_FILE:nexar::run> ${nccl_directory} ${pypi_cache} 4)
    set_tests_properties(nccl.${client}.4 PROPERTIES PROCESSORS 4)
  endforeach()
  nexar_client_test(program ${CMAKE_CURRENT_SOURCE_DIR}/nccl/program.sh
    ${Python3_EXECUTABLE} ${CMAKE_C_COMPILER} ${nccl_directory} ${pypi_cache})
  nexar_client_test(device_program ${CMAKE_CURRENT_SOURCE_DIR}/nccl/device_program.sh
    ${Python3_EXECUTABLE} ${CMAKE_C_COMPILER} ${nccl_directory} ${pypi_cache}
    $<TARGET_FILE_DIR:fake_cuda_driver>)
endif()

# Not a test, because NVIDIA's library is half a gigabyte. `make nccl-oracle` runs it.
nexar_program(nccl answers nccl/answers.c)
target_link_libraries(nccl.answers PRIVATE ${CMAKE_DL_LIBS})
