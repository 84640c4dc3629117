//! A file of samples in JSON Lines: one object per line.

use std::ops::Range;
use std::path::Path;

use super::chat::Tokens;
use super::marks::MarkEffect;
use super::order::held_out;
use super::preprocess::Preprocess;
use super::row::{MarkedRow, RowContent};
use crate::Error;

/// The samples of a file.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Dataset {
    /// The samples, in the order of the file.
    pub samples: Vec<Sample>,
    /// The number of samples that had nothing left to learn when they were cut. They are not in
    /// `samples`.
    pub dropped: usize,
    /// The number of samples that their marks exclude, such as `"weight": 0` of a row or of each of
    /// its replies. They are not in `samples`.
    pub excluded: usize,
    /// The number of conversations in which a token that ends texts follows a learned range and is
    /// not learned. A model trained on them may not learn to stop.
    pub unlearned_ends: usize,
    /// The number of samples that are conversations.
    pub conversations: usize,
}

/// A document of tokens.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The line in the file, counted from 1.
    pub line: usize,
    /// The tokens.
    pub ids: Vec<u32>,
    /// The ranges of tokens that are learned, in order. They end within the tokens.
    pub learned: Vec<Range<usize>>,
    /// Whether the document was longer than a row and was cut.
    pub cut: bool,
}

impl Sample {
    /// Returns the token after the one at `index` if it is learned, and `None` otherwise.
    pub fn label(&self, index: usize) -> Option<u32> {
        let next = index + 1;
        let range = self.learned.partition_point(|range| range.end <= next);
        let learned = self
            .learned
            .get(range)
            .is_some_and(|range| range.contains(&next));
        self.ids.get(next).filter(|_| learned).copied()
    }

    /// Returns the number of tokens that are learned.
    pub fn labelled(&self) -> usize {
        // The first token has no predecessor from which it could be learned.
        self.learned
            .iter()
            .map(|range| range.end.saturating_sub(range.start.max(1)))
            .sum()
    }
}

impl Dataset {
    /// Reads a file of samples.
    ///
    /// # Errors
    /// - [`Error::Read`] if the file cannot be read.
    /// - [`Error::Data`] with the line number if a line is not a sample.
    /// - [`Error::NoSamples`], [`Error::NothingToLearn`] or [`Error::AllExcluded`] if nothing is to
    ///   be learned.
    pub fn read(path: &Path, how: &Preprocess<'_>) -> Result<Dataset, Error> {
        let len = how.len;
        let bytes = std::fs::read(path).map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;

        // Some editors start a file with a byte order mark.
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let refuse = |line: usize, problem: String| Error::Data {
            path: path.to_owned(),
            line,
            problem,
        };
        let mut data = Dataset::default();
        for (line, text) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            if text.trim_ascii().is_empty() {
                continue;
            }

            let MarkedRow { row, mark } =
                MarkedRow::parse(text).map_err(|problem| refuse(line, problem))?;

            // An excluded row is read like all others, so that an error in it is not missed.
            let Tokens { ids, learned } =
                row.tokens(how).map_err(|problem| refuse(line, problem))?;
            if mark == MarkEffect::Excluded || learned.is_empty() {
                data.excluded += 1;
                continue;
            }

            if matches!(row, RowContent::Chat(_)) {
                data.conversations += 1;
                data.unlearned_ends +=
                    usize::from(has_unlearned_end(&ids, &learned, how.tokenizer.eos()));
            }

            data.add(
                Sample {
                    line,
                    ids,
                    learned,
                    cut: false,
                },
                len,
            );
        }

        let path = path.to_owned();
        if !data.samples.is_empty() {
            Ok(data)
        } else if data.dropped > 0 {
            Err(Error::NothingToLearn {
                path,
                dropped: data.dropped,
                len,
            })
        } else if data.excluded > 0 {
            Err(Error::AllExcluded {
                path,
                excluded: data.excluded,
            })
        } else {
            Err(Error::NoSamples { path })
        }
    }

    /// Adds a sample, cut to `len` tokens, unless nothing of it is learned then.
    fn add(&mut self, mut sample: Sample, len: usize) {
        if sample.ids.len() > len {
            sample.ids.truncate(len);
            sample.learned.retain(|range| range.start < len);
            for range in &mut sample.learned {
                range.end = range.end.min(len);
            }
            sample.cut = true;
        }
        if sample.labelled() == 0 {
            self.dropped += 1;
        } else {
            self.samples.push(sample);
        }
    }

    /// Removes samples for evaluation and returns them. It takes the fraction `share` of all
    /// samples, rounded, but at least one and never all. The seed decides which.
    ///
    /// # Errors
    /// Returns [`Error::Setting`] if `share` is not between 0 and 1, or if there are fewer than two
    /// samples.
    pub fn hold_out(&mut self, share: f64, seed: u64) -> Result<Dataset, Error> {
        let inside = share > 0.0 && share < 1.0;
        Error::unless(
            inside,
            "the share of samples to evaluate on",
            share,
            "above 0 and below 1",
        )?;
        let all = self.samples.len();
        let wanted = "at least 2, because a share of them is for evaluation";
        Error::unless(all > 1, "the number of samples", all, wanted)?;
        let chosen = held_out(
            all,
            seed,
            ((share * all as f64).round() as usize).clamp(1, all - 1),
        );
        let samples = std::mem::take(&mut self.samples).into_iter().enumerate();
        let (held, kept): (Vec<_>, Vec<_>) =
            samples.partition(|(i, _)| chosen.binary_search(i).is_ok());
        let samples =
            |some: Vec<(usize, Sample)>| some.into_iter().map(|(_, sample)| sample).collect();
        self.samples = samples(kept);
        Ok(Dataset {
            samples: samples(held),
            conversations: self.conversations,
            ..Dataset::default()
        })
    }

    /// Returns the number of samples that were cut.
    pub fn cut(&self) -> usize {
        self.samples.iter().filter(|sample| sample.cut).count()
    }

    /// Returns the number of tokens in all samples.
    pub fn tokens(&self) -> usize {
        self.samples.iter().map(|sample| sample.ids.len()).sum()
    }

    /// Returns the number of tokens that are learned in all samples.
    pub fn labelled(&self) -> usize {
        self.samples.iter().map(Sample::labelled).sum()
    }
}

/// Returns true if the token that ends a text follows a learned range without being learned.
fn has_unlearned_end(ids: &[u32], learned: &[Range<usize>], end: Option<u32>) -> bool {
    let follows = |range: &Range<usize>| ids.get(range.end).copied();
    end.is_some_and(|end| learned.iter().any(|range| follows(range) == Some(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::chat::one_range;

    fn data(samples: usize) -> Dataset {
        let sample = |line| Sample {
            line,
            ids: vec![1; line],
            learned: one_range(0..line),
            cut: line % 2 == 0,
        };
        Dataset {
            samples: (1..=samples).map(sample).collect(),
            dropped: 2,
            ..Dataset::default()
        }
    }

    fn lines(data: &Dataset) -> Vec<usize> {
        data.samples.iter().map(|sample| sample.line).collect()
    }

    #[test]
    fn labels_are_the_next_tokens_that_are_learned() {
        let mut data = Dataset::default();
        let sample = Sample {
            line: 1,
            ids: (10..18).collect(),
            learned: vec![0..2, 4..5, 6..8],
            cut: false,
        };
        data.add(sample.clone(), 8);
        data.add(sample.clone(), 7);
        data.add(sample, 1);
        let labels = |sample: &Sample| (0..8).map(|i| sample.label(i)).collect::<Vec<_>>();
        let wanted = [
            Some(11),
            None,
            None,
            Some(14),
            None,
            Some(16),
            Some(17),
            None,
        ];
        assert_eq!(
            (labels(&data.samples[0]), data.samples[0].labelled()),
            (wanted.to_vec(), 4)
        );
        let wanted = [Some(11), None, None, Some(14), None, Some(16), None, None];
        assert_eq!(
            (labels(&data.samples[1]), data.samples[1].labelled()),
            (wanted.to_vec(), 3)
        );
        assert_eq!(data.dropped, 1);
    }

    #[test]
    fn a_share_is_taken_out_by_the_seed() {
        for (samples, share, wanted) in [
            (100, 0.1, 10),
            (100, 0.001, 1),
            (100, 0.999, 99),
            (2, 0.9, 1),
            (3, 0.5, 2),
        ] {
            let mut kept = data(samples);
            let held = kept.hold_out(share, 7).unwrap();
            assert_eq!(held.samples.len(), wanted, "{share} of {samples}");
            assert!(lines(&held).is_sorted() && lines(&kept).is_sorted());
            let mut all = [lines(&held), lines(&kept)].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(1..=samples));
            assert_eq!((held.dropped, kept.dropped), (0, 2));
            assert_eq!(held.cut() + kept.cut(), samples / 2);
        }

        let held = |seed| lines(&data(100).hold_out(0.1, seed).unwrap());
        assert_eq!(held(7), held(7));
        assert_ne!(held(7), held(8));
    }

    #[test]
    fn refuses_shares_that_leave_nothing() {
        for share in [0.0, 1.0, -0.5, f64::NAN] {
            let error = data(9).hold_out(share, 0).unwrap_err().to_string();
            let wanted = format!(
                "the share of samples to evaluate on is {share}, but must be above 0 and below 1"
            );
            assert_eq!(error, wanted);
        }

        let error = data(1).hold_out(0.5, 0).unwrap_err().to_string();
        let wanted = "the number of samples is 1, but must be at least 2, because a share of them is for evaluation";
        assert_eq!(error, wanted);
    }
}
