# The instruction sets that the program has code for. Include this file before the rooms are added.
#
# With TESSERA_MARCH=portable, all files are compiled for the oldest supported processors, and vector code (the kernels
# and conversions of CPUs) once for each set of TESSERA_INSTRUCTION_SETS. The program chooses a set at run time
# (base/instruction_sets.h). With another value, all files are compiled for this processor, and there is one set.
set(TESSERA_MARCH "portable" CACHE STRING
    "portable: runs on every x86-64-v2 processor, with kernels for newer ones; or a value of -march: native, ...")
if(NOT TESSERA_MARCH STREQUAL "portable")
  set(TESSERA_BASE_MARCH ${TESSERA_MARCH})
  set(TESSERA_INSTRUCTION_SETS ${TESSERA_MARCH})
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(TESSERA_BASE_MARCH x86-64-v2)
  set(TESSERA_INSTRUCTION_SETS x86-64-v2 x86-64-v3 x86-64-v4)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(TESSERA_BASE_MARCH armv8-a)
  set(TESSERA_INSTRUCTION_SETS armv8-a)
else()
  message(FATAL_ERROR "TESSERA_MARCH=portable does not know ${CMAKE_SYSTEM_PROCESSOR}. Use -DTESSERA_MARCH=native")
endif()
list(LENGTH TESSERA_INSTRUCTION_SETS num_instruction_sets)
if(num_instruction_sets GREATER 1)
  # Of GNU binutils; lld has no --force-group-allocation.
  find_program(TESSERA_LD NAMES ld.bfd ld REQUIRED)
  execute_process(COMMAND ${TESSERA_LD} --help OUTPUT_VARIABLE ld_help ERROR_QUIET)
  if(NOT ld_help MATCHES "--force-group-allocation")
    message(FATAL_ERROR "${TESSERA_LD} cannot join objects. Set -DTESSERA_LD=PATH_OF_GNU_LD, or -DTESSERA_MARCH=native")
  endif()
endif()
message(STATUS "Instruction sets: ${TESSERA_INSTRUCTION_SETS}")

# The names of the sets in C++: TESSERA_FOR_EACH_INSTRUCTION_SET(X) is X(x86_64_v2) X(x86_64_v3) ..., from old to new.
set(calls)
foreach(set ${TESSERA_INSTRUCTION_SETS})
  string(MAKE_C_IDENTIFIER "${set}" name)
  string(APPEND calls " X(${name})")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/made/tessera_instruction_sets.h
     CONTENT "#define TESSERA_FOR_EACH_INSTRUCTION_SET(X)${calls}\n")

# tessera_vector_code(ROOM ENTRY SOURCES FILE... [LIBRARIES LIBRARY...] [OPTIONS OPTION...]) compiles files of a room for
# each instruction set and adds them to the room's library. The files define the C function ENTRY_<set>, named with
# TESSERA_OF_INSTRUCTION_SET (base/instruction_sets.h). With several sets, the objects of a set are joined to one object,
# in which all other symbols are local. Otherwise the linker would keep one copy of each inline function for the complete
# program: perhaps the one with instructions that only new processors have. docs/decisions has the reasons.
function(tessera_vector_code room entry)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "SOURCES;LIBRARIES;OPTIONS")
  foreach(set ${TESSERA_INSTRUCTION_SETS})
    string(MAKE_C_IDENTIFIER "${set}" name)
    set(target tessera_${room}_${name})
    add_library(${target} OBJECT ${arg_SOURCES})
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR} ${PROJECT_BINARY_DIR}/made)
    target_link_libraries(${target} PRIVATE ${arg_LIBRARIES} fmt::fmt)
    target_compile_definitions(${target} PRIVATE TESSERA_INSTRUCTION_SET=${name})
    target_compile_options(${target} PRIVATE -march=${set} -Wsign-conversion ${arg_OPTIONS})
    set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    if(num_instruction_sets EQUAL 1)
      target_sources(tessera_${room} PRIVATE $<TARGET_OBJECTS:${target}>)
      continue()
    endif()
    # The linker would also join unique symbols of several objects, even if they are local.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    set(joined ${CMAKE_CURRENT_BINARY_DIR}/${room}_${name}.o)
    add_custom_command(
      OUTPUT ${joined}
      COMMAND ${TESSERA_LD} -r --force-group-allocation -o ${joined} $<TARGET_OBJECTS:${target}>
      COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=${entry}_${name} ${joined}
      DEPENDS ${target} $<TARGET_OBJECTS:${target}> COMMAND_EXPAND_LISTS VERBATIM
      COMMENT "Joining the ${set} code of the room ${room}")
    set_source_files_properties(${joined} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(tessera_${room} PRIVATE ${joined})
  endforeach()
endfunction()
