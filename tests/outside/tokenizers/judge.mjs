// What llama.cpp makes of strings: node judge.mjs MODEL.gguf STRINGS.json special|literal > ids.json
import fs from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [, , modelPath, stringsPath, mode] = process.argv;
const strings = JSON.parse(fs.readFileSync(stringsPath, "utf8"));
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath, vocabOnly: true});
const ids = strings.map((text) => Array.from(model.tokenize(text, mode === "special")));
fs.writeFileSync(1, JSON.stringify(ids));
process.exit(0);
