/// @file
/// What the headers of the library have in common. Programs do not use it directly.
#pragma once

/// Marks what the shared library exports.
#define TESSERA_API __attribute__((visibility("default")))

/// The public names are in the inline namespace tessera::v0, so a program writes tessera::Model. The library itself has
/// other names in the namespace tessera, so there the namespace v0 is not inline.
#ifdef TESSERA_INSIDE_LIBRARY
#define TESSERA_BEGIN_NAMESPACE \
  namespace tessera {           \
  namespace v0 {
#else
#define TESSERA_BEGIN_NAMESPACE \
  namespace tessera {           \
  inline namespace v0 {
#endif
#define TESSERA_END_NAMESPACE \
  }                           \
  }
