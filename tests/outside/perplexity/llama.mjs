// What llama.cpp makes of tokens on the CPU, in the table of perplexity.py:
//     node llama.mjs MODEL.gguf IDS [CTX] [WINDOWS] > llama.tsv
// The logits are those of its CPU kernels; softmax and logarithm are taken here, in float64.
import fs from "node:fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [, , modelPath, idsPath, ctx = "512", most = "Infinity"] = process.argv;
const ids = fs.readFileSync(idsPath, "utf8").split(/[\s,]+/).filter(Boolean).map(Number);
const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({contextSize: Number(ctx), flashAttention: false});
const sequence = context.getSequence();
const bos = model.tokens.shouldPrependBosToken ? model.tokens.bos : null;
// Nothing may change the logits.
const raw = {generateNext: {logits: true, options: {temperature: 1, topK: 0, topP: 1, minP: 0}}};
const size = Number(ctx), first = Math.floor(size / 2) + 1;

function logLikelihood(logits, token) {
    let largest = -Infinity, sum = 0;
    for (const logit of logits.values()) largest = Math.max(largest, logit);
    for (const logit of logits.values()) sum += Math.exp(logit - largest);
    return logits.get(token) - largest - Math.log(sum);
}

let text = "# window\tposition\ttoken\tlog-likelihood\n";
for (let index = 0; index < Math.min(Math.floor(ids.length / size), Number(most)); index++) {
    const window = ids.slice(index * size, (index + 1) * size);
    if (bos != null) window[0] = bos;
    await sequence.clearHistory();
    const input = window.slice(0, -1).map((id, at) => (at >= first - 1 ? [id, raw] : id));
    const scored = [];
    await sequence.controlledEvaluate(input, {
        onTokenResult(at, {next}) {
            if (next.logits.size !== model.fileInfo.metadata.tokenizer.ggml.tokens.length) throw new Error("logits are missing");
            scored[at] = logLikelihood(next.logits, window[at + 1]);
        }
    });
    for (let at = first; at < size; at++) text += `${index}\t${at}\t${window[at]}\t${scored[at - 1]}\n`;
}
fs.writeFileSync(1, text);
process.exit(0);
