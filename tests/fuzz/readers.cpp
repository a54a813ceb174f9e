#include "readers.h"

#include <ATen/ATen.h>

#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/assemble/job.h"
#include "nereus/app/assemble/starting_plan.h"
#include "nereus/app/compare/frameworks.h"
#include "nereus/app/config/changes.h"
#include "nereus/app/observe/explain.h"
#include "nereus/app/observe/records.h"
#include "nereus/app/observe/summary.h"
#include "nereus/core/base/hash.h"
#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/data/checkpoint.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/data/prompts.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/live/saved_state.h"
#include "nereus/runtime/rl/rewards/vader_sentiment.h"
#include "nereus/runtime/supply/schedule.h"

namespace nereus::fuzz {

namespace {

namespace fs = std::filesystem;

const fs::path kSource = NEREUS_SOURCE_DIR;

std::string source_text(const char* file) { return read_text(kSource / file); }

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

Config quickstart(const std::vector<std::string>& overrides = {}) {
  return load_config(kSource / "examples/quickstart.yaml", overrides);
}

JobSpec quickstart_job() { return to_job_spec(quickstart(), /*on_gpus=*/false); }

// What commands do with a config before they start anything.
void use(const Config& config) {
  verify(config);
  all_devices(to_cluster(config));
  changed_settings(to_yaml(config), config);
  to_controller_options(config);
}

Reader yaml_reader() {
  return {"yaml",
          {source_text("examples/quickstart.yaml"), source_text("examples/grpo.yaml"),
           source_text("examples/quickstart.yaml") +
               "plan: {all: &x {tp: 1, pp: 1, dp: 2}, actor/training: *x}\n"},
          [](const fs::path&, const std::string& input) {
            changed_settings(input, Config());
            use(parse_config(input, "input.yaml", kSource / "examples"));
          }};
}

Reader override_reader() {
  return {"override",
          {"trainer.seed=2", "data.max_response_length=[[0,32],[16,64]]", "plan.all.tp=2",
           "plan={all: {tp: 1, dp: 4}}", "cluster.memory_per_device=26MiB", "+reward.sign=-1",
           "actor_rollout_ref.actor.optim.betas=[0.9, 0.99]", "supply=[[0,4],[4,2]]",
           "trainer.logger=[console]", "algorithm.kl_ctrl={kl_coef: 0.1}"},
          [](const fs::path&, const std::string& input) {
            use(parse_config(source_text("examples/quickstart.yaml"), "input.yaml",
                             kSource / "examples", {input}));
          }};
}

Reader trace_reader() {
  return {"trace",
          {"step,devices\n# away for a while\n0,4\n4,2\n8,4\n", "0,4\n"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "trace.csv", input);
            static const Cluster kCluster = to_cluster(quickstart());
            read_supply_trace(kCluster, folder / "trace.csv");
          }};
}

Reader plan_reader() {
  return {
      "plan",
      {source_text("examples/transition/from.json"), source_text("examples/transition/to.json")},
      [](const fs::path& folder, const std::string& input) {
        write(folder / "plan.json", input);
        static const JobSpec kJob = quickstart_job();
        static const DevicePool kPool = all_devices(to_cluster(quickstart()));
        const Plan plan = read_plan(folder / "plan.json");
        to_string(plan);
        verify(plan, kPool, kJob);
      }};
}

Reader cluster_reader() {
  return {"cluster",
          {Json(named_cluster("h200x8", 2)).dump(1), Json(named_cluster("a100x4", 1)).dump(1)},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "cluster.json", input);
            const auto cluster = as<Cluster>(parse_json(read_text(folder / "cluster.json"), "x"));
            verify(cluster);
            all_devices(cluster);
          }};
}

Reader compare_reader() {
  return {"compare",
          {source_text("examples/plan/verl.sh"), source_text("examples/plan/nemo_rl.yaml"),
           source_text("examples/plan/openrlhf.sh")},
          [](const fs::path&, const std::string& input) {
            const ForeignKeys keys = read_foreign_keys(input);
            const ForeignSetting setting = translate(recognise(keys), keys);
            static const JobSpec kJob = quickstart_job();
            use(quickstart(job_overrides(setting, quickstart())));
            to_plan(setting, kJob, all_devices(named_cluster("h200x8", 4)));
          }};
}

Reader model_config_reader() {
  return {"config_json",
          {source_text("assets/stories260K/config.json"),
           source_text("examples/models/llama-3.2-1b/config.json")},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "config.json", input);
            read_model_spec(folder);
          }};
}

Reader generation_config_reader() {
  return {"generation_config_json",
          {R"({"eos_token_id": [3, 10], "temperature": 0.6})", R"({"eos_token_id": 2})"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "config.json", source_text("assets/stories260K/config.json"));
            write(folder / "generation_config.json", input);
            read_model_spec(folder);
          }};
}

// Two tensors; the text of a header followed by its data.
std::string with_length(const std::string& text, uint64_t length) {
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + text;
}

Reader safetensors_reader() {
  const std::string data(24, '\1');
  return {
      "safetensors",
      {R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
       R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})" +
           data,
       R"({"__metadata__":{"format":"pt"},"c":{"dtype":"I64","shape":[3],"data_offsets":[0,24]}})" +
           data},
      [](const fs::path& folder, const std::string& input) {
        write(folder / "input.safetensors", input);
        read_safetensors(folder / "input.safetensors");
      },
      [](const std::string& text, uint64_t seed) {
        constexpr uint64_t kLengths[] = {0, ~uint64_t{0}, uint64_t{1} << 63, 100'000'001};
        if (seed % 8 == 0) return with_length(text, kLengths[seed / 8 % 4]);
        const size_t end = text.rfind('}');
        return with_length(text, end == text.npos ? text.size() : end + 1);
      }};
}

Reader index_reader() {
  Json map = Json::object();
  static const ModelSpec kSpec = read_model_spec(kSource / "assets/stories260K");
  for (const TensorSpec& tensor : tensors(kSpec)) map[tensor.name] = "model-1.safetensors";
  return {"index_json",
          {Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump()},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "model.safetensors.index.json", input);
            if (!fs::exists(folder / "model-1.safetensors")) {
              write_safetensors(folder / "model-1.safetensors",
                                random_model(kSpec, DType::kFloat32, 1));
            }
            read_model(folder, kSpec, DType::kFloat32);
          }};
}

Reader tokenizer_reader() {
  const std::string small =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":0,"content":"<s>",)"
      R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],)"
      R"("normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},)"
      R"("post_processor":null,"decoder":{"type":"WordPiece","prefix":"##","cleanup":true},)"
      R"("model":{"type":"WordLevel","vocab":{"<s>":0,"a":1,"b":2},"unk_token":"<s>"}})";
  return {"tokenizer_json", {small}, [](const fs::path& folder, const std::string& input) {
            write(folder / "tokenizer.json", input);
            const auto tokenizer = Tokenizer::open(folder);
            tokenizer->decode(tokenizer->encode("a b c", true));
          }};
}

Reader char_tokenizer_reader() {
  return {"tokenizer_config_json",
          {R"({"char_ords": [48, 49, 50, 44], "model_max_length": 2048})"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "tokenizer_config.json", input);
            const auto tokenizer = Tokenizer::open(folder);
            if (input.find("\"char_ords\"") == input.npos) return;
            tokenizer->encode("0,1", true);
          }};
}

Reader prompt_reader() {
  return {
      "prompts",
      {R"({"prompt": "Once upon a time", "answer": "42"})"
       "\n"
       R"({"prompt": [{"role": "user", "content": "1+1?"}], "reward_model": {"ground_truth": "2"}})"
       "\n",
       R"({"prompt_ids": [1, 2, 3], "extra_info": {"index": 7}, "data_source": "made/up"})"
       "\n"},
      [](const fs::path& folder, const std::string& input) {
        write(folder / "prompts.jsonl", input);
        read_prompts(folder / "prompts.jsonl", "prompt");
      }};
}

Json saved_state(int step) {
  return {{"step", step},
          {"position", 8},
          {"kl_coef", 0.02},
          {"seed", 1},
          {"updates", {{"actor", 2}}},
          {"version", {{"actor", 1}}},
          {"extra", {{"plan", parse_json(source_text("examples/transition/from.json"), "")}}}};
}

Reader manifest_reader() {
  const auto root = fs::temp_directory_path() / "nereus_fuzz_seed";
  write_checkpoint(root, 1, saved_state(1), {{"actor", {{"weights/w", at::ones({2})}}}}, 0);
  const std::string seed = read_text(root / "step_1/manifest.json");
  const std::string part = read_text(root / "step_1/actor.safetensors");
  return {"manifest",
          {seed},
          [part](const fs::path& folder, const std::string& input) {
            write(folder / "step_1/actor.safetensors", part);
            write(folder / "step_1/manifest.json", input);
            const CheckpointSearch search = search_checkpoints(folder);
            if (!search.newest) throw Error(ErrorCode::kInvalidInput, search.damaged.at(0));
            verify_progress(*search.newest, {"actor"});
            const Json extra = require<Json>(search.newest->state, "extra", "manifest.json");
            require<Plan>(extra, "plan", "manifest.json");
          },
          // Half of them with a hash that confirms what they say.
          [](const std::string& text, uint64_t seed) {
            if (seed % 2 == 0) return text;
            try {
              Json manifest = parse_json(text, "");
              if (!manifest.is_object()) return text;
              manifest.erase("hash");
              const std::string said = to_line(manifest);
              manifest["hash"] = to_hex(hash_bytes(std::as_bytes(std::span(said))));
              return manifest.dump();
            } catch (const Error&) {
              return text;
            }
          }};
}

Reader metrics_reader() {
  return {"metrics",
          {R"({"step": 0, "wall_s": 1.5, "response_tokens": 40, "critic/score/mean": 0.5,)"
           R"( "timing_s/step": 1.0, "peak_bytes": {"0:0": 100}})"
           "\n"
           R"({"step": 1, "wall_s": 2.5, "response_tokens": 41, "actor/ref_kl": null})"
           "\n"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "metrics.jsonl", input);
            const Records records = read_records(folder / "metrics.jsonl", RecordKind::kMetrics);
            to_line(summarize(records.lines, {}));
            if (!records.problems.empty()) {
              throw Error(ErrorCode::kInvalidInput, records.problems.front());
            }
          }};
}

Reader events_reader() {
  const std::string plan = parse_json(source_text("examples/transition/from.json"), "").dump();
  return {"events",
          {R"({"type": "plan", "step": 0, "file": "plans/000.json", "text": "actor/training"})"
           "\n"
           R"({"type": "decision", "step": 3, "trigger": "drift", "urgent": false, "gain_s": 0.5,)"
           R"( "signals": {"response_length": 46.0}, "horizon": 8, "gamma": 0.5, "verdict": )"
           R"("admitted", "reason": "it pays back", "transition_s": 0.5, "best": )" +
           plan +
           R"(, "next": {"step_s": 1, "step_s_low": 0.5, "step_s_high": 2}})"
           "\n"
           R"({"type": "transition", "step": 3, "predicted_s": 0.5, "measured_s": 0.4,)"
           R"( "moved_bytes": 2048, "verified": true, "primitives": [{"id": 0, "text": "split",)"
           R"( "bytes_moved": 2048, "predicted_s": 0.5, "measured_s": null}]})"
           "\n"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "events.jsonl", input);
            const Records records = read_records(folder / "events.jsonl", RecordKind::kEvents);
            to_line(summarize({}, records.lines));
            render_explain(records.lines);
            render_explain(read_events(folder / "events.jsonl"), 4);
          }};
}

Reader lexicon_reader() {
  return {"lexicon",
          {"happy\t2.7\t0.9\nsad\t-2.1\t0.9\n"},
          [](const fs::path& folder, const std::string& input) {
            write(folder / "lexicon.txt", input);
            VaderSentiment(folder / "lexicon.txt", 1);
          }};
}

}  // namespace

std::vector<Reader> readers() {
  return {
      yaml_reader(),        override_reader(), trace_reader(),        plan_reader(),
      cluster_reader(),     compare_reader(),  model_config_reader(), generation_config_reader(),
      safetensors_reader(), index_reader(),    tokenizer_reader(),    char_tokenizer_reader(),
      prompt_reader(),      manifest_reader(), metrics_reader(),      events_reader(),
      lexicon_reader()};
}

}  // namespace nereus::fuzz
