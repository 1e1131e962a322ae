# quern_commit(OUT): the commit that is built, with "-dirty" behind it when the
# tree differs; empty outside a git checkout.  -DQUERN_COMMIT=... says it where
# there is none, as in an archive.
set(QUERN_COMMIT "" CACHE STRING "Commit of the sources; empty: ask git")
function(quern_commit out)
  set(commit "${QUERN_COMMIT}")
  # Not the commit of a repository that the sources merely lie in.
  if(NOT commit AND EXISTS ${PROJECT_SOURCE_DIR}/.git)
    execute_process(
      COMMAND git -C ${PROJECT_SOURCE_DIR} describe --always --dirty
              --abbrev=12 --exclude=*
      OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE
      ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
      set(commit "")
    endif()
  endif()
  set(${out} "${commit}" PARENT_SCOPE)
endfunction()
