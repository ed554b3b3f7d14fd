from shardwise.random.keys import *
from shardwise.random.draws import *
