# The checks for a machine with a GPU, run on the fake driver, so that they stay correct.

file(GLOB gpu_sources CONFIGURE_DEPENDS cuda/gpu/*.c)
nexar_program(cuda gpu_check cuda/gpu_check.c ${gpu_sources})
target_compile_options(cuda.gpu_check PRIVATE -O2)
# Not linked with a driver: it loads the one that is installed, like a user's program.
target_link_libraries(cuda.gpu_check PRIVATE nexar::nexar Threads::Threads ${CMAKE_DL_LIBS})

# nexar_gpu_check(<name> <driver> <command>...): leaked objects are a failure here too.
function(nexar_gpu_check name driver)
  nexar_test(cuda ${name} ${ARGN})
  set_tests_properties(cuda.${name} PROPERTIES PROCESSORS 2)
  set_property(TEST cuda.${name} PROPERTY ENVIRONMENT FAKECUDA_LEAKS=abort
    LD_LIBRARY_PATH=${CMAKE_CURRENT_BINARY_DIR}/cuda/${driver})
endfunction()
set(two_ranks nexar::run -n 2 $<TARGET_FILE:cuda.gpu_check>)
nexar_gpu_check(gpu_check.2 driver ${two_ranks} 33) # MiB: more pieces than the ring has slots
nexar_gpu_check(gpu_check.threads driver cuda.gpu_check 9)
nexar_gpu_check(gpu_check.without_memops driver_without_memops ${two_ranks} 9)
# Without a device the program says so.
nexar_gpu_check(gpu_check.no_device driver
  sh -c "$<TARGET_FILE:cuda.gpu_check> && exit 1 || test \$? -eq 77")
set_property(TEST cuda.gpu_check.no_device APPEND PROPERTY ENVIRONMENT FAKECUDA_DEVICES=0)
# And with the driver of this machine, if it has one.
nexar_test(cuda gpu_check.here nexar::run -n 2 $<TARGET_FILE:cuda.gpu_check> 64)
set_tests_properties(cuda.gpu_check.here PROPERTIES PROCESSORS 2 SKIP_RETURN_CODE 77)

# The program in CUDA.md.
nexar_unwatched_test(cuda example sh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/example.sh ${CMAKE_C_COMPILER}
  $<TARGET_FILE:nexar::run> ${nexar_lib} ${CMAKE_CURRENT_BINARY_DIR}/cuda/driver)

# NVIDIA's own driver without a device, if its package can be downloaded.
nexar_test(cuda no_device sh ${CMAKE_CURRENT_SOURCE_DIR}/cuda/no_device.sh
  ${PROJECT_BINARY_DIR}/libcuda1 $<TARGET_FILE:nexar::run> ${nexar_lib}
  $<TARGET_FILE:cuda.gpu_check> $<TARGET_FILE:collective.allreduce> $<TARGET_FILE:api.stream>)
set_tests_properties(cuda.no_device PROPERTIES PROCESSORS 2 SKIP_RETURN_CODE 77)
