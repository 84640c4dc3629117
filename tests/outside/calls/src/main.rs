//! Reads replies with dynamo-parsers: `outside-calls TOOLS < REPLIES > RESULTS`.
//!
//! TOOLS is a list of functions as in OpenAI's API. Each line of REPLIES is an object with `parser` and `reply`. RESULTS
//! repeats the lines and adds `calls`, or `error`.

use std::io::BufRead;

use dynamo_parsers::{ToolDefinition, detect_and_parse_tool_call};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let path = std::env::args().nth(1).expect("the path of the tools");
    let tools: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let tools: Vec<ToolDefinition> = tools
        .iter()
        .map(|tool| ToolDefinition {
            name: tool["function"]["name"].as_str().unwrap().to_owned(),
            parameters: tool["function"].get("parameters").cloned(),
            strict: None,
        })
        .collect();
    for line in std::io::stdin().lock().lines() {
        let mut line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let reply = line["reply"].as_str().unwrap().to_owned();
        let parser = line["parser"].as_str().unwrap().to_owned();
        match detect_and_parse_tool_call(&reply, Some(&parser), Some(&tools)).await {
            Ok((calls, _)) => {
                let calls = calls.iter().map(|call| {
                    let arguments: Value =
                        serde_json::from_str(&call.function.arguments).unwrap_or(Value::Null);
                    json!({ "name": call.function.name, "arguments": arguments })
                });
                line["calls"] = calls.collect();
            }
            Err(error) => line["error"] = json!(error.to_string()),
        }
        println!("{line}");
    }
}
