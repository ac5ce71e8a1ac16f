# The fake CUDA driver, which is never installed, and its own tests. cuda/driver in the build tree
# holds libcuda.so.1 and libcuda.so; cuda/driver_without_memops holds those of a driver that is too
# old for the memory operations of streams.

file(GLOB fake_sources CONFIGURE_DEPENDS cuda/fake/*.c)
foreach(variant IN ITEMS driver driver_without_memops)
  add_library(fake_cuda_${variant} SHARED cuda/fake_libcuda.c ${fake_sources})
  target_compile_definitions(fake_cuda_${variant} PRIVATE _GNU_SOURCE=)
  target_compile_options(fake_cuda_${variant} PRIVATE -O2)
  target_link_options(fake_cuda_${variant} PRIVATE -Wl,-z,nodelete -Wl,-z,defs
    -Wl,-Bsymbolic-functions)
  target_link_libraries(fake_cuda_${variant} PRIVATE Threads::Threads)
  set_target_properties(fake_cuda_${variant} PROPERTIES
    OUTPUT_NAME cuda VERSION 1 SOVERSION 1 C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda/${variant})
endforeach()
target_compile_definitions(fake_cuda_driver_without_memops PRIVATE FAKE_WITHOUT_MEMOPS)

foreach(name IN ITEMS fake_selftest fake_selftest_programs fake_selftest_capture
                      fake_selftest_faults)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE
    fake_cuda_driver nexar::nexar Threads::Threads ${CMAKE_DL_LIBS})
  nexar_test(cuda ${name} cuda.${name})
endforeach()
set_tests_properties(cuda.fake_selftest_faults PROPERTIES
  ENVIRONMENT DRIVER_WITHOUT_MEMOPS=$<TARGET_FILE:fake_cuda_driver_without_memops>)
# Again with operations that take time.
nexar_test(cuda fake_selftest.late cuda.fake_selftest)
set_tests_properties(cuda.fake_selftest.late PROPERTIES ENVIRONMENT FAKECUDA_LATENCY_US=0-300)

# nexar_cuda_test(<program>[.<what>] <ranks> <way> <setting>...): processes, each with a device; way
# is shm, quic or mixed, as in nexar_process_test. Objects that the library leaks are a failure.
function(nexar_cuda_test name n way)
  string(REGEX REPLACE "\\..*" "" program ${name})
  set(test ${name}.${way}.${n})
  set(launcher)
  if(way STREQUAL mixed)
    set(launcher ${CMAKE_CURRENT_SOURCE_DIR}/process/two_hosts.sh)
  elseif(way STREQUAL quic)
    list(APPEND ARGN NEXAR_SHM_DISABLE=1)
  endif()
  nexar_test(cuda ${test} nexar::run -n ${n} ${launcher}
    $<TARGET_FILE:cuda.${program}>)
  set_tests_properties(cuda.${test} PROPERTIES PROCESSORS ${n})
  set_property(TEST cuda.${test} PROPERTY ENVIRONMENT FAKECUDA_LEAKS=abort ${ARGN})
endfunction()

foreach(name IN ITEMS operations operators bucketed streams groups mixed_groups random_groups
                      messages threads refusals comm_init devices thread_per_device)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE
    fake_cuda_driver nexar::nexar Threads::Threads m)
endforeach()

# Each setting with several programs, not every combination.
set(late FAKECUDA_LATENCY_US=200)
set(uneven FAKECUDA_LATENCY_US=0-200)
set(one_queue FAKECUDA_HWQ=1)
nexar_cuda_test(operations 2 quic ${uneven} ${one_queue})
nexar_cuda_test(operations 3 shm ${late} ${one_queue})
nexar_cuda_test(operations 4 mixed ${uneven} FAKECUDA_MANAGED_TYPE=1)
nexar_cuda_test(operations.registered_elsewhere 2 shm FAKECUDA_REGISTERED_ALIAS=1)
nexar_cuda_test(operations.some_without_device 3 quic ODD_RANKS=INIT=100)
nexar_cuda_test(operators 2 shm ${uneven} ${one_queue})
nexar_cuda_test(bucketed 2 quic ${uneven} ${one_queue})
nexar_cuda_test(bucketed 3 shm)
foreach(name IN ITEMS streams groups messages)
  nexar_cuda_test(${name} 2 quic ${late})
  nexar_cuda_test(${name} 3 mixed ${uneven} ${one_queue})
  nexar_cuda_test(${name}.without_memops 3 shm ${uneven} FAKECUDA_NO_MEMOPS=1)
endforeach()
nexar_cuda_test(mixed_groups 2 quic ${one_queue})
nexar_cuda_test(mixed_groups.without_memops 3 mixed FAKECUDA_NO_MEMOPS=1)
nexar_cuda_test(random_groups 2 quic RANDOM_SEED=1)
nexar_cuda_test(random_groups 3 shm RANDOM_SEED=2 FAKECUDA_QUEUE_DEPTH=24)
nexar_cuda_test(random_groups.some_without_memops 3 shm RANDOM_SEED=4 ODD_RANKS=NO_MEMOPS=1)
nexar_cuda_test(random_groups.without_memops 3 mixed RANDOM_SEED=3 FAKECUDA_NO_MEMOPS=1)
nexar_cuda_test(threads 2 quic ${uneven})
nexar_cuda_test(threads 3 shm ${one_queue})
nexar_cuda_test(refusals 2 shm ${uneven})
nexar_cuda_test(refusals 3 mixed ${one_queue})
nexar_cuda_test(comm_init 2 quic ${one_queue})
nexar_cuda_test(comm_init 4 shm ${uneven})
# Ranks are threads.
nexar_test(cuda devices cuda.devices)
set_tests_properties(cuda.devices PROPERTIES
  ENVIRONMENT "FAKECUDA_DEVICES=4;FAKECUDA_LEAKS=abort;${uneven}")

# Allocations of the driver wait for the work of their device, or for that of all devices.
set(stalls FAKECUDA_LEAKS=abort FAKECUDA_ALLOC_SYNC=all)
nexar_test(cuda thread_per_device cuda.thread_per_device)
set_tests_properties(cuda.thread_per_device PROPERTIES
  PROCESSORS 2 ENVIRONMENT "${stalls};${uneven}")
nexar_test(cuda thread_per_device.all_devices cuda.thread_per_device)
set_tests_properties(cuda.thread_per_device.all_devices PROPERTIES
  PROCESSORS 2 ENVIRONMENT "${stalls};${uneven};FAKECUDA_ALLOC_SYNC_DEVICES=all")

# Failures of the driver and of ranks, and the ends of communicators.
foreach(name IN ITEMS injection injection_comm network_failures comm_end abort
                      pinned_pool)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE fake_cuda_driver nexar::nexar Threads::Threads)
  nexar_test(cuda ${name} cuda.${name})
endforeach()
set_tests_properties(cuda.injection PROPERTIES PROCESSORS 2)
nexar_test(cuda injection.without_memops cuda.injection)
set_tests_properties(cuda.injection.without_memops PROPERTIES
  PROCESSORS 2 ENVIRONMENT FAKECUDA_NO_MEMOPS=1)
nexar_cuda_test(injection 2 shm)
nexar_cuda_test(injection 2 quic)
set_tests_properties(cuda.network_failures cuda.comm_end cuda.abort cuda.pinned_pool
  PROPERTIES PROCESSORS 2)
nexar_test(cuda network_failures.quic cuda.network_failures)
set_tests_properties(cuda.network_failures.quic PROPERTIES
  PROCESSORS 2 ENVIRONMENT NEXAR_SHM_DISABLE=1)

# Drivers whose streams cannot await values: one whose functions fail, and one that lacks them.
nexar_program(cuda blocking_calls cuda/blocking_calls.c)
target_link_libraries(cuda.blocking_calls PRIVATE fake_cuda_driver nexar::nexar Threads::Threads)
nexar_test(cuda blocking_calls cuda.blocking_calls)
set_tests_properties(cuda.blocking_calls PROPERTIES PROCESSORS 2 ENVIRONMENT FAKECUDA_NO_MEMOPS=1)
nexar_test(cuda blocking_calls.large_messages cuda.blocking_calls)
set_tests_properties(cuda.blocking_calls.large_messages PROPERTIES
  PROCESSORS 2 ENVIRONMENT CHECK_CASES=a_large_message)
nexar_program(cuda blocking_calls_old_driver cuda/blocking_calls.c)
target_link_libraries(cuda.blocking_calls_old_driver PRIVATE
  fake_cuda_driver_without_memops nexar::nexar Threads::Threads)
nexar_test(cuda blocking_calls.old_driver cuda.blocking_calls_old_driver)
set_tests_properties(cuda.blocking_calls.old_driver PROPERTIES PROCESSORS 2)

# No driver, or one that cannot be initialized:
# nexar_no_driver_test(<name> <code of cuInit> <reason>).
nexar_program(cuda no_driver cuda/no_driver.c)
target_link_libraries(cuda.no_driver PRIVATE nexar::nexar Threads::Threads ${CMAKE_DL_LIBS})
function(nexar_no_driver_test name code why)
  nexar_test(cuda no_driver.${name} cuda.no_driver)
  set_property(TEST cuda.no_driver.${name} PROPERTY ENVIRONMENT
    LD_LIBRARY_PATH=$<TARGET_FILE_DIR:fake_cuda_driver> FAKECUDA_INIT=${code} EXPECTED=${why})
endfunction()
nexar_test(cuda no_driver cuda.no_driver)
set_tests_properties(cuda.no_driver PROPERTIES SKIP_RETURN_CODE 77
  ENVIRONMENT "EXPECTED=libcuda.so.1 was not found")
nexar_no_driver_test(stub 34 stub)
nexar_no_driver_test(no_device 100 "there is no device")
nexar_no_driver_test(other_version 803 "(803)")
nexar_no_driver_test(unknown 999 "CUDA_ERROR_UNKNOWN (999)")
nexar_test(cuda no_driver.from_some.3 nexar::run -n 3
  ${CMAKE_CURRENT_SOURCE_DIR}/cuda/one_driver.sh $<TARGET_FILE_DIR:fake_cuda_driver>
  $<TARGET_FILE:cuda.no_driver>)
set_tests_properties(cuda.no_driver.from_some.3 PROPERTIES PROCESSORS 3)

# Calls on host memory in a process that has a driver.
foreach(name IN ITEMS fast_path barrier)
  nexar_test(cuda host_memory.${name} collective.${name})
  set_tests_properties(cuda.host_memory.${name} PROPERTIES
    ENVIRONMENT "LD_LIBRARY_PATH=$<TARGET_FILE_DIR:fake_cuda_driver>")
endforeach()

# Copies of some pieces overlap with the network's work on others.
nexar_program(cuda overlap cuda/overlap.c)
target_link_libraries(cuda.overlap PRIVATE fake_cuda_driver nexar::nexar Threads::Threads)
nexar_cuda_test(overlap 2 quic FAKECUDA_COPY_MBPS=500)

include(cuda/gpu.cmake)
