//! Embeddings of texts next to running sequences.

use warpwright_engine::{Batch, BatchOptions, Decoder, Error, Launch, Options};
use warpwright_model::Model;

use crate::batch::{VOCAB, edited, file, small, tokens};
use crate::decode::emulator;

/// The vector of `warpwright embed`.
fn wanted(decoder: &mut Decoder, ids: &[u32]) -> Vec<f64> {
    let mut sums: Vec<f64> = vec![];
    for row in decoder.hidden_states(ids).unwrap() {
        let row = row.unwrap();
        sums.resize(row.len(), 0.0);
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f64::from(x);
        }
    }
    let length = sums.iter().map(|x| x * x).sum::<f64>().sqrt();
    sums.iter().map(|x| x / length).collect()
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

/// One sequence, whose batch has room for no other, and two pages more than it uses.
fn options() -> BatchOptions {
    BatchOptions {
        tokens: 48,
        positions: 4 * 64,
        ..BatchOptions::new(1, 128)
    }
}

fn batch(model: &Model) -> Batch {
    Batch::new(&emulator(), model, options(), |_| ()).unwrap()
}

#[test]
fn texts_are_embedded_next_to_a_sequence() {
    let model = small("embed");
    let mut decoder = Decoder::new(
        &emulator(),
        &model,
        Options::new(128, Launch::Graph),
        |_| (),
    )
    .unwrap();
    let mut batch = batch(&model);
    let id = batch.join().unwrap();
    let prompt = tokens(8, 70);
    batch.step(&[(id, &prompt[..40])]).unwrap();
    let next = batch.step(&[(id, &prompt[40..])]).unwrap()[0];
    let logits = batch.logits(id).unwrap();
    let free = batch.free_pages();

    // Together in a pass, alone, and one that needs several passes.
    let texts = [
        tokens(1, 20),
        tokens(2, 1),
        tokens(3, 27),
        tokens(4, 110),
        tokens(5, 3),
    ];
    let given: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    let vectors = batch.embed(&given).unwrap();
    assert_eq!(vectors.len(), texts.len());
    for (text, vector) in texts.iter().zip(&vectors) {
        let wanted = wanted(&mut decoder, text);
        let error = vector.iter().zip(&wanted);
        let error = error
            .map(|(x, wanted)| (f64::from(*x) - wanted).powi(2))
            .sum::<f64>()
            .sqrt();
        assert!(error < 4e-3, "{} tokens: {error}", text.len());
    }

    // The sequence is as it was, and goes on as it would have.
    assert_eq!(batch.free_pages(), free);
    assert_eq!(bits(&batch.logits(id).unwrap()), bits(&logits));
    let found = batch.decode(&[(id, next)], 4).unwrap();
    batch.roll_back(id, 70).unwrap();
    assert_eq!(batch.decode(&[(id, next)], 4).unwrap(), found);
    let mut alone = self::batch(&model);
    let id = alone.join().unwrap();
    alone.step(&[(id, &prompt[..40])]).unwrap();
    alone.step(&[(id, &prompt[40..])]).unwrap();
    assert_eq!(alone.decode(&[(id, next)], 4).unwrap(), found);
}

#[test]
fn texts_that_cannot_be_embedded_are_refused_and_leave_no_page() {
    let bad_row = 50 * 8 * 34;
    let broken = file().edit("token_embd.weight", |table| {
        table.data[bad_row..][..2].copy_from_slice(&[0, 0x7e])
    });
    let mut batch = batch(&edited("embed-bad", &broken));
    let free = batch.free_pages();
    let long = vec![1; 129];
    let errors: [(&[u32], &str); 4] = [
        (&[], "the prompt is empty"),
        (&[1, VOCAB], "token 1 of the prompt is 160"),
        (&long, "cannot append 129 tokens to a sequence of 0"),
        (&[1, 50], "of the hidden state at position 0 is NaN"),
    ];
    for (text, message) in errors {
        let error = batch.embed(&[&[1, 2], text]).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(batch.free_pages(), free);
    }

    // One of two pages is in use.
    let other = BatchOptions {
        positions: 2 * 64,
        ..options()
    };
    let mut full = Batch::new(&emulator(), &small("embed-full"), other, |_| ()).unwrap();
    let id = full.join().unwrap();
    full.step(&[(id, &[1; 40])]).unwrap();
    full.embed(&[&[1; 64], &[2; 64]]).unwrap();
    let error = full.embed(&[&[1; 65]]);
    assert!(matches!(
        error,
        Err(Error::NoPages {
            needed: 2,
            free: 1,
            all: 2
        })
    ));
    assert_eq!(full.embed(&[]).unwrap(), Vec::<Vec<f32>>::new());
}
