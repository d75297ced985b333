"""How the differences were judged, in the words that every report carries."""

METHOD = (
    "Accuracies are compared by a paired bootstrap over test samples and seeds at once (10,000 resamples; all but one "
    "of the seeds drawn each time); the 95 % interval is the bootstrap standard error times a t quantile with "
    "Satterthwaite's degrees of freedom, at most those of the seeds. Without kept predictions: Welch's t interval, "
    "from three seeds on. Two mixers are distinguishable where the interval excludes 0 and the p-value stays below "
    "0.05 after Holm's correction over the pairs of the data set and protocol; the intervals themselves are not "
    "widened for the number of pairs. With one seed the interval covers test samples only, and no verdict is given."
)
