"""Special functions under SciPy's names."""

from typing import TYPE_CHECKING

from shardwise._src.base.lazy import lazy_names

if TYPE_CHECKING:
    from shardwise._src.nn.normalize import logsumexp as logsumexp
    from shardwise._src.scipy.betas import beta as beta
    from shardwise._src.scipy.betas import betainc as betainc
    from shardwise._src.scipy.betas import betaln as betaln
    from shardwise._src.scipy.betas import comb as comb
    from shardwise._src.scipy.betas import poch as poch
    from shardwise._src.scipy.errors import dawsn as dawsn
    from shardwise._src.scipy.errors import erf as erf
    from shardwise._src.scipy.errors import erfc as erfc
    from shardwise._src.scipy.errors import erfcinv as erfcinv
    from shardwise._src.scipy.errors import erfcx as erfcx
    from shardwise._src.scipy.errors import erfinv as erfinv
    from shardwise._src.scipy.errors import fresnel as fresnel
    from shardwise._src.scipy.errors import log_ndtr as log_ndtr
    from shardwise._src.scipy.errors import ndtr as ndtr
    from shardwise._src.scipy.errors import ndtri as ndtri
    from shardwise._src.scipy.errors import owens_t as owens_t
    from shardwise._src.scipy.errors import wofz as wofz
    from shardwise._src.scipy.gammas import bernoulli as bernoulli
    from shardwise._src.scipy.gammas import digamma as digamma
    from shardwise._src.scipy.gammas import factorial as factorial
    from shardwise._src.scipy.gammas import gamma as gamma
    from shardwise._src.scipy.gammas import gammainc as gammainc
    from shardwise._src.scipy.gammas import gammaincc as gammaincc
    from shardwise._src.scipy.gammas import gammaln as gammaln
    from shardwise._src.scipy.gammas import gammasgn as gammasgn
    from shardwise._src.scipy.gammas import loggamma as loggamma
    from shardwise._src.scipy.gammas import multigammaln as multigammaln
    from shardwise._src.scipy.gammas import polygamma as polygamma
    from shardwise._src.scipy.gammas import zeta as zeta
    from shardwise._src.scipy.hypergeometric import hyp1f1 as hyp1f1
    from shardwise._src.scipy.hypergeometric import hyp2f1 as hyp2f1
    from shardwise._src.scipy.integrals import exp1 as exp1
    from shardwise._src.scipy.integrals import expi as expi
    from shardwise._src.scipy.integrals import expn as expn
    from shardwise._src.scipy.integrals import sici as sici
    from shardwise._src.scipy.integrals import spence as spence
    from shardwise._src.scipy.legendre import lpmn as lpmn
    from shardwise._src.scipy.legendre import lpmn_values as lpmn_values
    from shardwise._src.scipy.special import bessel_jn as bessel_jn
    from shardwise._src.scipy.special import boxcox as boxcox
    from shardwise._src.scipy.special import boxcox1p as boxcox1p
    from shardwise._src.scipy.special import entr as entr
    from shardwise._src.scipy.special import expit as expit
    from shardwise._src.scipy.special import i0 as i0
    from shardwise._src.scipy.special import i0e as i0e
    from shardwise._src.scipy.special import i1 as i1
    from shardwise._src.scipy.special import i1e as i1e
    from shardwise._src.scipy.special import kl_div as kl_div
    from shardwise._src.scipy.special import log_softmax as log_softmax
    from shardwise._src.scipy.special import logit as logit
    from shardwise._src.scipy.special import rel_entr as rel_entr
    from shardwise._src.scipy.special import softmax as softmax
    from shardwise._src.scipy.special import sph_harm_y as sph_harm_y
    from shardwise._src.scipy.special import xlog1py as xlog1py
    from shardwise._src.scipy.special import xlogy as xlogy

lazy_names(__name__)
