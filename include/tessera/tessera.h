/// @file
/// The complete library.
#pragma once

#include <tessera/error.h>
#include <tessera/export.h>
#include <tessera/log.h>
#include <tessera/loss.h>
#include <tessera/metrics.h>
#include <tessera/model.h>
#include <tessera/options.h>
#include <tessera/plan.h>
#include <tessera/rows.h>
#include <tessera/train.h>
#include <tessera/version.h>
