// What llama.cpp makes of strings: node judge.mjs MODEL.gguf STRINGS.json special|literal IDS.json
import fs from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [, , modelPath, stringsPath, mode, out] = process.argv;
const strings = JSON.parse(fs.readFileSync(stringsPath, "utf8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath, vocabOnly: true});
const ids = strings.map((text) => Array.from(model.tokenize(text, mode === "special")));
// Not to standard output: the library writes there, too, and a pipe may be full.
fs.writeFileSync(out, JSON.stringify(ids));
process.exit(0);
