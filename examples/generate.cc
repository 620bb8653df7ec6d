// Continues a text, and prints it while the model generates it. With a question mark at the end of the text and a model
// that has a chat template, answers it instead.
//
//     generate MODEL "Ada lives in" 20
#include <cstdio>
#include <cstdlib>
#include <string>

#include <tessera/tessera.h>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: generate MODEL TEXT TOKENS\n");
    return 2;
  }
  try {
    tessera::Model model = tessera::Model::load(argv[1]);
    const std::string text = argv[2];
    const tessera::GenerateOptions options{.max_new_tokens = std::atoi(argv[3])};
    const auto show = [](std::string_view part) {
      std::fwrite(part.data(), 1, part.size(), stdout);
      std::fflush(stdout);
      return true;  // false ends the text
    };
    const tessera::Generation result =
        text.ends_with('?') ? model.chat().say(text, options, show) : model.generate(text, options, show);
    std::printf("\n");
    std::fprintf(stderr, "%zu tokens after a prompt of %lld, in %.2f s\n", result.ids.size(),
                 static_cast<long long>(result.num_prompt_tokens), result.seconds);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", tessera::name_of(error.kind()), error.what());
    return 1;
  }
}
