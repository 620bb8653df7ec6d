// The groups of settings that the verbs take which compute with a model. The library takes the same settings.
#pragma once

#include <string>
#include <vector>

#include "tessera/settings/setting.h"

namespace tessera {

// Settings of a model. A model is read from a folder or made from flags.
inline constexpr Groups kAnyModel = kModel | kWeights | kTokenizer | kVocabulary | kShape | kMachine;
// Settings that change what a training run computes. `tessera plan` also takes these settings.
inline constexpr Groups kTraining = kAnyModel | kAdapter | kInitAdapter | kText | kRows | kChat | kDataset |
                                    kTrainData | kEvalData | kOptimization | kTrainEvaluation | kEvalBatch | kScoring |
                                    kGeneration | kSharding | kGradients | kLog;

inline constexpr Groups kTrainVerb = kTraining | kRanks | kCheckpoints | kSavedModel | kOverwrite | kPreflight |
                                     kOutputDir | kMemoryLog | kPlan | kPresentation;
inline constexpr Groups kEvalVerb = kAnyModel | kInitAdapter | kText | kRows | kChat | kEvalData | kEvalBatch |
                                    kScoring | kGeneration | kRanks | kSharding | kOutputDir | kLog | kPresentation;
inline constexpr Groups kGenerateVerb = kAnyModel | kInitAdapter | kRows | kChat | kGeneration | kSampling | kQuestion |
                                        kPrompt | kPromptFile | kEvalBatch | kRanks | kSharding | kOutputFile |
                                        kPresentation;
inline constexpr Groups kChatVerb =
    kAnyModel | kInitAdapter | kChat | kDialog | kGeneration | kSampling | kSharding | kPresentation;
inline constexpr Groups kPlanVerb = kTraining | kRanks | kCheckpoints | kSavedModel | kOverwrite | kPreflight |
                                    kOutputDir | kNodes | kPlan | kPlanOutput | kPresentation;
inline constexpr Groups kSlurmVerb = kSlurm | kNodes;
inline constexpr Groups kExportVerb =
    kAnyModel | kInitAdapter | kMerge | kCheckpoint | kSavedModel | kGguf | kOverwrite | kOutputDir;

// The names of all verbs: the tables that a configuration file may have.
std::vector<std::string> names_of_verbs();

}  // namespace tessera
