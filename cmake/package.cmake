# What `cmake --install` installs beside the program and the library, and how CPack makes packages (tools/package.sh).
include(GNUInstallDirs)

# The program writes its own manual page and completions.
set(written
  "man" "${CMAKE_INSTALL_MANDIR}/man1/tessera.1"
  "completions bash" "${CMAKE_INSTALL_DATADIR}/bash-completion/completions/tessera"
  "completions zsh" "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions/_tessera"
  "completions fish" "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/tessera.fish")
while(written)
  list(POP_FRONT written words file)
  string(REPLACE " " ";" words "${words}")
  install(CODE "
    set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${file}\")
    get_filename_component(folder \"\${file}\" DIRECTORY)
    file(MAKE_DIRECTORY \"\${folder}\")
    message(STATUS \"Installing: \${file}\")
    execute_process(COMMAND \"${PROJECT_BINARY_DIR}/tessera\" ${words} OUTPUT_FILE \"\${file}\" COMMAND_ERROR_IS_FATAL ANY)")
endwhile()

set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The Tessera developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Fine-tunes language models, on CPUs and GPUs")
set(CPACK_PACKAGE_FILE_NAME "tessera${TESSERA_PACKAGE_SUFFIX}-${PROJECT_VERSION}-linux-x86_64")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_DEBIAN_PACKAGE_NAME "tessera${TESSERA_PACKAGE_SUFFIX}")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.27), libgcc-s1 | libgcc1")
if(TESSERA_PACKAGE_SUFFIX)  # both packages have the same files
  set(CPACK_DEBIAN_PACKAGE_PROVIDES tessera)
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS tessera)
  set(CPACK_DEBIAN_PACKAGE_REPLACES tessera)
endif()
include(CPack)
