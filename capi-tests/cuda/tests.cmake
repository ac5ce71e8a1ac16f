# A CUDA driver without a device, in the build tree alone, and the proof that it is as it should be.
# cuda/driver holds libcuda.so.1 and libcuda.so; cuda/driver_without_memops those of a driver that is too
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

foreach(name IN ITEMS fake_selftest fake_selftest_capture fake_selftest_faults)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE
    fake_cuda_driver nexar::nexar Threads::Threads ${CMAKE_DL_LIBS})
  nexar_test(cuda ${name} cuda.${name})
endforeach()
set_tests_properties(cuda.fake_selftest_faults PROPERTIES
  ENVIRONMENT DRIVER_WITHOUT_MEMOPS=$<TARGET_FILE:fake_cuda_driver_without_memops>)
# Again with operations that take their time.
nexar_test(cuda fake_selftest.late cuda.fake_selftest)
set_tests_properties(cuda.fake_selftest.late PROPERTIES ENVIRONMENT FAKECUDA_LATENCY_US=0-300)

# nexar_cuda_test(<program> <ranks> <way> <setting>...): processes that have a device each; way is shm, quic or
# mixed, as that of nexar_process_test. What the library has not given back at the end is a failure.
function(nexar_cuda_test program n way)
  set(test ${program}.${way}.${n})
  set(launcher)
  if(way STREQUAL mixed)
    set(launcher ${CMAKE_CURRENT_SOURCE_DIR}/process/two_hosts.sh)
  elseif(way STREQUAL quic)
    list(APPEND ARGN NEXAR_SHM_DISABLE=1)
  endif()
  nexar_test(cuda ${test} nexar::run -n ${n} --timeout 55 ${launcher}
    $<TARGET_FILE:cuda.${program}>)
  set_tests_properties(cuda.${test} PROPERTIES PROCESSORS ${n})
  set_property(TEST cuda.${test} PROPERTY ENVIRONMENT FAKECUDA_LEAKS=abort ${ARGN})
endfunction()

foreach(name IN ITEMS operations)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE
    fake_cuda_driver nexar::nexar Threads::Threads m)
endforeach()
nexar_cuda_test(operations 2 shm FAKECUDA_LATENCY_US=0)
nexar_cuda_test(operations 2 quic FAKECUDA_LATENCY_US=0-200 FAKECUDA_HWQ=1)
nexar_cuda_test(operations 3 shm FAKECUDA_LATENCY_US=200 FAKECUDA_HWQ=1)
nexar_cuda_test(operations 3 mixed FAKECUDA_LATENCY_US=0)
nexar_cuda_test(operations 4 mixed FAKECUDA_LATENCY_US=0-200)

# Failures of the driver.
foreach(name IN ITEMS injection injection_making)
  nexar_program(cuda ${name} cuda/${name}.c)
  target_link_libraries(cuda.${name} PRIVATE fake_cuda_driver nexar::nexar Threads::Threads)
  nexar_test(cuda ${name} cuda.${name})
endforeach()
set_tests_properties(cuda.injection PROPERTIES PROCESSORS 2 TIMEOUT 120)
nexar_cuda_test(injection 2 shm)
nexar_cuda_test(injection 2 quic)
